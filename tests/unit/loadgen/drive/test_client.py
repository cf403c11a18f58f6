"""The HTTP client of all benches, on real sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from support.waiting import DEADLINE_S
from weft_bench.drive.client import Client, Refused

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def served(answer):
    """A server. `answer` gets the reader, the writer and the connection's number."""
    connections: list[int] = []

    async def handle(reader, writer):
        connections.append(len(connections))
        try:
            await answer(reader, writer, connections[-1])
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        async with Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
            yield client, connections
    finally:
        server.close()


async def read(reader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head + await reader.readexactly(length)


@pytest.mark.anyio
async def test_connection_carries_sequential_calls_with_their_headers():
    requests: list[bytes] = []

    async def answer(reader, writer, number):
        while True:
            requests.append(await read(reader))
            writer.write(OK + b"%d!" % len(requests))

    async with served(answer) as (client, connections):
        first = await client.post("/x", b"one", {"x-session-id": "s"})
        assert (first.status, first.body) == (200, b"1!")
        assert first.headers == {"content-length": "2"}
        assert 0 < first.sent_s <= first.ended_s
        assert (await client.post("/y", {"a": 1})).body == b"2!"
    assert connections == [0]
    assert requests[0].startswith(b"POST /x HTTP/1.1\r\n")
    assert b"x-session-id: s\r\n" in requests[0]
    assert requests[1].endswith(b'\r\n\r\n{"a": 1}')


@pytest.mark.anyio
async def test_closed_kept_connection_loses_no_call():
    async def answer(reader, writer, number):
        await read(reader)
        writer.write(OK + b"%d." % number)
        await writer.drain()
        if not number:
            # Takes the next request and closes without an answer.
            await read(reader)

    async with served(answer) as (client, connections):
        assert (await client.post("/")).body == b"0."
        assert (await client.post("/")).body == b"1."
    assert connections == [0, 1]


@pytest.mark.anyio
async def test_missing_answer_is_an_error():
    async def answer(reader, writer, number):
        await read(reader)

    async with served(answer) as (client, _):
        with pytest.raises(ConnectionError):
            await client.post("/")


@pytest.mark.anyio
async def test_other_status_or_body_is_refused():
    async def answer(reader, writer, number):
        while True:
            await read(reader)
            writer.write(OK.replace(b"200 OK", b"429 Full") + b"no")

    async with served(answer) as (client, _):
        found = await client.get("/")
        with pytest.raises(Refused, match="429: no"):
            found.json()
        with pytest.raises(Refused, match="429: no"):
            found.json(429)


@pytest.mark.anyio
async def test_events_of_a_stream_arrive_one_by_one_whatever_the_chunks():
    received: list[tuple[str, bytes]] = []
    first = asyncio.Event()

    async def answer(reader, writer, number):
        await read(reader)
        writer.write(STREAM + chunk(b'data: {"a": 1}\n\nevent: tool\nda'))
        await asyncio.wait_for(first.wait(), DEADLINE_S)
        writer.write(chunk(b"ta: {}\n\n: comment\n\n") + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    def take(event: str, data: bytes) -> None:
        received.append((event, data))
        first.set()

    async with served(answer) as (client, _):
        found = await client.post("/", on_event=take)
    assert received == [("", b'{"a": 1}'), ("tool", b"{}"), ("", b""), ("", b"[DONE]")]
    assert found.body == b""


@pytest.mark.anyio
async def test_error_answer_to_a_streamed_call_is_its_body():
    async def answer(reader, writer, number):
        await read(reader)
        writer.write(OK.replace(b"200 OK", b"503 Busy") + b"no")

    async with served(answer) as (client, _):
        found = await client.post("/", on_event=lambda event, data: pytest.fail("no event"))
    assert (found.status, found.text) == (503, "no")


@pytest.mark.anyio
async def test_failure_of_a_receiver_ends_the_call():
    async def answer(reader, writer, number):
        await read(reader)
        writer.write(STREAM + chunk(b"data: {}\n\n"))
        await reader.read()

    def take(event: str, data: bytes) -> None:
        raise KeyError("choices")

    async with served(answer) as (client, _):
        with pytest.raises(KeyError, match="choices"):
            await client.post("/", on_event=take)


@pytest.mark.anyio
async def test_broken_stream_is_an_error_and_is_not_sent_again():
    async def answer(reader, writer, number):
        await read(reader)
        if number:
            pytest.fail("the call was sent again")
        writer.write(OK + b"ok")
        await read(reader)
        writer.write(STREAM + chunk(b"data: {}\n\n"))

    async with served(answer) as (client, connections):
        await client.post("/")
        with pytest.raises(ConnectionError):
            await client.post("/", on_event=lambda event, data: None)
    assert connections == [0]


@pytest.mark.anyio
async def test_cancelled_call_closes_its_connection():
    asked, gone = asyncio.Event(), asyncio.Event()

    async def answer(reader, writer, number):
        await read(reader)
        asked.set()
        await reader.read()
        gone.set()

    async with served(answer) as (client, _):
        call = asyncio.create_task(client.post("/"))
        await asyncio.wait_for(asked.wait(), DEADLINE_S)
        call.cancel()
        await asyncio.wait_for(gone.wait(), DEADLINE_S)


@pytest.mark.anyio
async def test_garbage_is_an_error():
    async def answer(reader, writer, number):
        await read(reader)
        writer.write(b"SSH-2.0-OpenSSH\r\n")
        await reader.read()

    async with served(answer) as (client, _):
        with pytest.raises(ConnectionError):
            await client.post("/")
