"""The pool's decisions, on connections without sockets."""

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import DEADLINE_S
from weft_gateway.engine.connection import Connection
from weft_gateway.engine.errors import (
    ConnectFailed,
    ReplicaAnswerTooLarge,
    ReplicaClosed,
    ReplicaLost,
    ReplicaTimeout,
)
from weft_gateway.engine.kernel import Peer
from weft_gateway.engine.pool import MAX_IDLE_S, Exchange, Timeouts, Upstream

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CLOSE = b""
# The connection ends, with proof that the request was not read.
UNREAD = b"unread"
# The connection ends after one byte of an answer.
PARTIAL = b"partial"


class Transport:
    """Answers each request with the next entry of a script, and appends it to `journal`."""

    def __init__(self, connection: Connection, script: list[bytes], journal: list[bytes]) -> None:
        self._connection = connection
        self._script = script
        self._journal = journal
        self._closing = False

    def write(self, data: bytes) -> None:
        answer = self._script.pop(0) if self._script else CLOSE
        self._journal.append(answer)
        loop = asyncio.get_running_loop()
        if answer in (CLOSE, UNREAD, PARTIAL):
            if answer == PARTIAL:
                loop.call_soon(self._connection.data_received, b"H")
            self._closing = True
            self._connection.unread = answer == UNREAD
            loop.call_soon(self._connection.connection_lost, None)
        else:
            loop.call_soon(self._connection.data_received, answer)

    def get_extra_info(self, name: str) -> Any:
        return None

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)


class Scripted(Upstream):
    """An upstream whose n-th connection plays the n-th script."""

    def __init__(self, *scripts: list[bytes]) -> None:
        super().__init__("http://engine", Timeouts(1, 10, 1))
        self.left = list(scripts)
        self.made: list[Connection] = []
        self.journal: list[bytes] = []

    async def connect(self) -> Connection:
        if not self.left:
            raise ConnectFailed("connection refused")
        connection = Connection(asyncio.get_running_loop(), self._lost)
        transport: Any = Transport(connection, self.left.pop(0), self.journal)
        connection.connection_made(transport)
        self.made.append(connection)
        self.busy.add(connection)
        return connection


async def call(upstream: Upstream) -> bytes:
    exchange = Exchange(upstream)
    try:
        await exchange.start(b"HEAD", b"BODY")
        return await exchange.read_all()
    finally:
        exchange.close()


async def test_connection_serves_several_calls() -> None:
    upstream = Scripted([OK, OK, OK])
    for _ in range(3):
        assert await call(upstream) == b"ok"
    assert len(upstream.made) == 1
    assert not upstream.busy


async def test_concurrent_calls_use_separate_connections() -> None:
    upstream = Scripted([OK, OK], [OK, OK])
    assert await asyncio.gather(call(upstream), call(upstream)) == [b"ok", b"ok"]
    assert len(upstream.made) == 2
    await call(upstream)
    assert len(upstream.made) == 2


async def test_request_that_was_provably_not_read_is_sent_again() -> None:
    upstream = Scripted([OK, UNREAD], [OK])
    await call(upstream)
    assert await call(upstream) == b"ok"
    assert len(upstream.made) == 2


async def test_request_without_that_proof_is_not_sent_again() -> None:
    upstream = Scripted([OK, CLOSE], [OK])
    await call(upstream)
    with pytest.raises(ReplicaClosed):
        await call(upstream)
    assert len(upstream.made) == 1
    assert not upstream.busy


@pytest.mark.parametrize(("second", "error"), [(CLOSE, ReplicaClosed), (UNREAD, ConnectFailed)])
async def test_second_failure_is_reported(second: bytes, error: type[Exception]) -> None:
    upstream = Scripted([OK, UNREAD], [second], [OK])
    await call(upstream)
    with pytest.raises(error):
        await call(upstream)
    assert len(upstream.made) == 2
    assert not upstream.busy


async def test_another_replica_may_take_a_request_that_was_not_read_if_no_one_listens() -> None:
    upstream = Scripted([OK, UNREAD])
    await call(upstream)
    with pytest.raises(ConnectFailed):
        await call(upstream)
    assert upstream.journal[-1] == UNREAD
    assert not upstream.busy


@given(
    st.lists(
        st.lists(st.sampled_from([OK, OK, CLOSE, UNREAD, PARTIAL]), min_size=1, max_size=4),
        max_size=6,
    )
)
def test_request_is_read_at_most_once(scripts: list[list[bytes]]) -> None:
    async def calls() -> None:
        upstream = Scripted(*[list(script) for script in scripts])
        for _ in range(6):
            upstream.journal.clear()
            try:
                assert await asyncio.wait_for(call(upstream), DEADLINE_S) == b"ok"
                assert upstream.journal[-1] == OK
            except ConnectFailed:
                assert all(answer == UNREAD for answer in upstream.journal)
            except ReplicaClosed:
                assert any(answer != UNREAD for answer in upstream.journal)
            assert sum(answer != UNREAD for answer in upstream.journal) <= 1
            assert len(upstream.journal) <= 2
            assert not upstream.busy

    asyncio.run(calls())


class Front:
    """An engine behind a real socket that closes a kept connection on request. The thread of the
    event loop drives it, so that the loop cannot see the close before the next request is sent."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(DEADLINE_S)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections: list[socket.socket] = []

    def __enter__(self) -> "Front":
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self.connections):
            each.close()

    def accept_and_answer(self) -> bytes:
        connection, _ = self._listener.accept()
        connection.settimeout(DEADLINE_S)
        self.connections.append(connection)
        request = b""
        while not request.endswith(b"BODY"):
            request += connection.recv(100)
        connection.sendall(OK)
        return request


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": on}) for on in (False, True)])
@pytest.mark.parametrize("noticed", [True, False])
async def test_closed_kept_connection_fails_no_call(
    noticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Front() as front:
        upstream = Upstream(front.url, Timeouts(20, 20, 20))
        first = asyncio.create_task(call(upstream))
        await asyncio.to_thread(front.accept_and_answer)
        assert await first == b"ok"
        if not noticed:  # The same as a FIN that arrives between the check and the write.
            monkeypatch.setattr(Peer, "quiet", lambda _: True)
        front.connections[0].close()
        second = asyncio.create_task(call(upstream))
        assert await asyncio.to_thread(front.accept_and_answer) == b"HEADBODY"
        assert await second == b"ok"
        upstream.close()


async def test_request_is_not_sent_again_after_one_byte() -> None:
    upstream = Scripted([OK, b"H"], [OK])
    await call(upstream)
    exchange = Exchange(upstream)
    task = asyncio.create_task(exchange.start(b"HEAD", b"BODY"))
    machine = upstream.made[0].machine
    while machine.complete or not machine.started:  # noqa: ASYNC110
        await asyncio.sleep(0)
    upstream.made[0].connection_lost(None)
    with pytest.raises(ReplicaClosed):
        await task
    exchange.close()
    assert len(upstream.made) == 1


async def test_stale_connection_drops_the_other_idle_ones() -> None:
    upstream = Scripted([OK, UNREAD], [OK, UNREAD], [OK])
    await asyncio.gather(call(upstream), call(upstream))
    assert await call(upstream) == b"ok"
    assert len(upstream.made) == 3
    assert upstream.take_idle() is upstream.made[2]


async def test_unread_answer_drops_its_connection() -> None:
    upstream = Scripted([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"], [OK])
    exchange = Exchange(upstream)
    await exchange.start(b"HEAD", b"BODY")
    assert await exchange.read() == b"half"
    exchange.close()
    assert upstream.take_idle() is None
    assert await call(upstream) == b"ok"


async def test_exchange_cancelled_before_it_connects_sends_nothing() -> None:
    upstream = Scripted([OK])
    exchange = Exchange(upstream)
    exchange.cancel(ReplicaTimeout("too late"))
    with pytest.raises(ReplicaTimeout):
        await exchange.start(b"HEAD", b"BODY")
    exchange.close()
    assert not upstream.busy
    assert upstream.take_idle() is None


async def test_sweep_fails_only_late_exchanges() -> None:
    upstream = Scripted([b"HTTP/1.1 200 OK\r\n"], [b"HTTP/1.1 200 OK\r\n"])
    late, early = Exchange(upstream), Exchange(upstream)
    tasks = [asyncio.create_task(e.start(b"HEAD", b"BODY")) for e in (late, early)]
    while len(upstream.busy) < 2 or not all(c.machine.started for c in upstream.made):  # noqa: ASYNC110
        await asyncio.sleep(0)
    upstream.made[0].deadline = 5.0
    upstream.sweep(now=6.0)
    with pytest.raises(ReplicaTimeout):
        await tasks[0]
    assert not tasks[1].done()
    upstream.close()
    with pytest.raises(ReplicaClosed):
        await tasks[1]


async def waiting(number: int) -> tuple[Scripted, list[asyncio.Task[None]]]:
    """Return an upstream with `number` exchanges whose answers have begun."""
    begun = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\na"
    upstream = Scripted(*[[begun] for _ in range(number)])
    upstream.timeouts = Timeouts(1, 100, 100, lost_s=8.0)
    exchanges = [Exchange(upstream) for _ in range(number)]
    for exchange in exchanges:
        await exchange.start(b"HEAD", b"BODY")
        assert await exchange.read() == b"a"

    async def rest(exchange: Exchange) -> None:
        try:
            await exchange.read_all()
        finally:
            exchange.close()

    tasks = [asyncio.create_task(rest(exchange)) for exchange in exchanges]
    await asyncio.sleep(0)
    return upstream, tasks


async def test_only_silent_calls_of_a_dead_replica_are_lost() -> None:
    upstream, (silent, moves) = await waiting(2)
    now = asyncio.get_running_loop().time()
    upstream.seems_gone(now)
    upstream.seems_gone(now + 4.0)  # Each check reports it again.
    upstream.made[1].data_received(b"b")
    upstream.sweep(now + 7.9)
    await asyncio.sleep(0)
    assert not silent.done()
    upstream.sweep(now + 8.0)
    with pytest.raises(ReplicaLost):
        await silent
    assert not moves.done()
    upstream.seems_gone(now + 9.0)
    upstream.sweep(now + 17.0)
    with pytest.raises(ReplicaLost):
        await moves


async def test_recovered_replica_loses_no_call() -> None:
    upstream, tasks = await waiting(1)
    now = asyncio.get_running_loop().time()
    upstream.seems_gone(now)
    upstream.is_there()
    upstream.sweep(now + 9.0)
    await asyncio.sleep(0)
    assert not tasks[0].done()
    upstream.close()
    with pytest.raises(ReplicaClosed):
        await tasks[0]


async def test_a_queued_call_waits_while_its_replica_serves_others() -> None:
    upstream, (other,) = await waiting(1)
    upstream.timeouts = Timeouts(1, 100, 50, queued_s=250)
    upstream.left = [[b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"]]
    queued = asyncio.create_task(call(upstream))
    await asyncio.sleep(0)
    serving, waits = upstream.made
    now = waits.sent_at

    async def swept(after_s: float, heard_s: float) -> bool:
        """Sweep after a byte for the other call. Return whether the queued call still waits."""
        serving.deadline = now + heard_s + 50
        upstream.sweep(now + after_s)
        for _ in range(3):
            await asyncio.sleep(0)
        return not queued.done()

    assert await swept(110, heard_s=90)
    assert await swept(195, heard_s=180)
    # The whole wait is limited.
    assert not await swept(251, heard_s=240)
    with pytest.raises(ReplicaTimeout):
        await queued
    other.cancel()


@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize("pieces", [1, 2])
async def test_answer_size_is_limited(size: int, pieces: int) -> None:
    body = b"x" * size
    upstream = Scripted([b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size])
    upstream.max_answer_bytes = 3
    exchange = Exchange(upstream)
    await exchange.start(b"HEAD", b"BODY")
    whole = asyncio.create_task(exchange.read_all())
    for begin in range(0, size, -(-size // pieces)):
        await asyncio.sleep(0)
        upstream.made[0].data_received(body[begin : begin + -(-size // pieces)])
    if size == 3:
        assert await whole == body
    else:
        with pytest.raises(ReplicaAnswerTooLarge, match="3 bytes"):
            await whole
    exchange.close()
    assert not upstream.busy


async def test_deadline_of_the_end_does_not_move() -> None:
    upstream = Scripted([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"])
    exchange = Exchange(upstream)
    await exchange.start(b"HEAD", b"BODY")
    exchange.expect_end_within(0.5)
    first = upstream.made[0].deadline
    upstream.made[0].data_received(b"1\r\na\r\n")
    assert upstream.made[0].deadline > first
    exchange.expect_end_within(0.5)
    assert upstream.made[0].deadline == first
    exchange.close()


async def test_connections_are_dropped_after_a_long_idle_time() -> None:
    upstream = Scripted([OK])
    await call(upstream)
    now = asyncio.get_running_loop().time()
    upstream.sweep(now)
    assert upstream.made[0].usable
    upstream.sweep(now + MAX_IDLE_S + 1)
    assert upstream.take_idle() is None


async def test_refused_connection_leaves_the_pool_unchanged() -> None:
    upstream = Scripted()
    with pytest.raises(ConnectFailed):
        await call(upstream)
    assert not upstream.busy


@pytest.mark.parametrize(
    ("url", "authority", "prefix"),
    [
        ("http://engine", "engine", ""),
        ("http://engine:8000/base/", "engine:8000", "/base"),
        ("https://user:secret@engine", "engine", ""),
        ("http://[::1]:8000", "[::1]:8000", ""),
    ],
)
async def test_url_is_split_into_authority_and_prefix(
    url: str, authority: str, prefix: str
) -> None:
    upstream = Upstream(url, Timeouts(1, 1, 1))
    assert (upstream.authority, upstream.prefix) == (authority, prefix.encode())
