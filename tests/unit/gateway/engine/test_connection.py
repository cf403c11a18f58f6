"""One connection: scripted bytes from the wire, and a transport that records its calls."""

import asyncio
import errno
import math
from typing import Any

import pytest
from weft_gateway.engine.connection import HIGH_WATER_BYTES, LOW_WATER_BYTES, Connection
from weft_gateway.engine.errors import (
    ClientGone,
    ReplicaClosed,
    ReplicaGarbage,
    ReplicaLost,
    ReplicaTimeout,
)

pytestmark = pytest.mark.anyio

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


class Transport:
    """Records its calls. As on a real transport, the connection is lost after an abort."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.written = b""
        self.reading = True
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts: Any) -> None:
        self.written += b"".join(parts)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_extra_info(self, name: str) -> Any:
        return None

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        if not self.aborted:
            self.aborted = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)


def connected() -> tuple[Connection, Transport]:
    connection = Connection(asyncio.get_running_loop(), lambda _: None)
    transport = Transport(connection)
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


def sent() -> tuple[Connection, Transport]:
    connection, transport = connected()
    connection.send((b"HEAD", b"BODY"), first_byte_s=10, idle_s=1)
    return connection, transport


@pytest.mark.parametrize("size", [4, 100_000])
async def test_request_is_written_in_one_piece(size: int) -> None:
    connection, transport = connected()
    connection.send((b"HEAD", b"B" * size), 10, 1)
    assert transport.written == b"HEAD" + b"B" * size


async def test_answer_in_one_piece_is_read() -> None:
    connection, _ = sent()
    connection.data_received(ANSWER)
    await connection.head()
    assert await connection.read() == b"hello"
    assert await connection.read() == b""
    assert connection.release()


async def test_reader_wakes_for_each_piece() -> None:
    connection, _ = sent()
    reading = asyncio.create_task(connection.head())
    for byte in ANSWER[:-5]:
        await asyncio.sleep(0)
        assert not reading.done()
        connection.data_received(bytes([byte]))
    await reading
    reader = asyncio.create_task(connection.read())
    await asyncio.sleep(0)
    connection.data_received(b"hel")
    assert await reader == b"hel"


async def test_pieces_that_arrive_together_are_read_together() -> None:
    connection, _ = sent()
    connection.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for chunk in (b"1\r\na\r\n", b"1\r\nb\r\n", b"1\r\nc\r\n"):
        connection.data_received(chunk)
    assert await connection.read() == b"abc"


async def test_garbage_ends_the_exchange_and_the_connection() -> None:
    connection, transport = sent()
    connection.data_received(b"garbage\r\n\r\n")
    with pytest.raises(ReplicaGarbage):
        await connection.head()
    assert transport.aborted
    assert not connection.release()


async def test_early_end_is_raised_after_the_received_bytes() -> None:
    connection, _ = sent()
    connection.data_received(ANSWER[:-2])
    connection.connection_lost(None)
    await connection.head()
    assert await connection.read() == b"hel"
    with pytest.raises(ReplicaClosed):
        await connection.read()


async def test_reset_does_not_end_a_body() -> None:
    connection, _ = sent()
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nhel")
    connection.connection_lost(ConnectionResetError())
    assert await connection.read() == b"hel"
    with pytest.raises(ReplicaClosed):
        await connection.read()


async def test_host_without_keepalive_answers_is_lost() -> None:
    connection, _ = sent()
    connection.connection_lost(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
    with pytest.raises(ReplicaLost):
        await connection.head()


async def test_cancelled_exchange_raises_its_reason_and_drops_the_connection() -> None:
    connection, transport = sent()
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
    reader = asyncio.create_task(connection.read())
    await asyncio.sleep(0)
    connection.fail(ClientGone())
    with pytest.raises(ClientGone):
        await reader
    assert transport.aborted
    await asyncio.sleep(0)
    with pytest.raises(ClientGone):  # The later connection loss does not count as the body's end.
        await connection.read()


async def test_first_cancel_reason_is_kept() -> None:
    connection, _ = sent()
    connection.fail(ReplicaTimeout())
    connection.fail(ClientGone())
    with pytest.raises(ReplicaTimeout):
        await connection.head()


async def test_unsolicited_bytes_end_the_connection() -> None:
    connection, transport = connected()
    connection.data_received(ANSWER)
    assert transport.aborted


async def test_slow_reader_pauses_reading_and_the_deadline() -> None:
    connection, transport = sent()
    size = HIGH_WATER_BYTES * 4
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
    connection.data_received(b"x" * (HIGH_WATER_BYTES + 1))
    assert not transport.reading
    assert connection.deadline == math.inf
    assert len(await connection.read()) == HIGH_WATER_BYTES + 1
    assert transport.reading
    assert connection.deadline < math.inf


async def test_reading_resumes_below_the_low_water_mark() -> None:
    connection, transport = sent()
    connection.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    size = HIGH_WATER_BYTES + 1
    connection.data_received(b"%x\r\n%b\r\n" % (size, b"x" * size))
    left = size
    while left > LOW_WATER_BYTES:
        assert not transport.reading
        assert connection.deadline == math.inf
        left -= len(await connection.read(16_384))
    assert transport.reading
    assert connection.deadline < math.inf


async def test_head_of_a_stream_does_not_count_as_its_first_byte() -> None:
    connection, _ = sent()
    waiting = connection.deadline
    connection.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    assert connection.deadline == waiting
    connection.data_received(b"1\r\na\r\n")
    assert connection.deadline < waiting


async def test_idle_connection_has_no_deadline() -> None:
    connection, _ = sent()
    connection.data_received(ANSWER)
    assert connection.release()
    assert connection.deadline == math.inf
