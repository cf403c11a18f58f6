"""The agents' client, on real sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from weft_bench.drive.client import Client

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


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
    client = Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield client, connections
    finally:
        client.close()
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
        assert await client.post("/x", b"one", {"x-session-id": "s"}) == (200, b"1!")
        assert await client.post("/y", b"two", {}) == (200, b"2!")
    assert connections == [0]
    assert requests[0].startswith(b"POST /x HTTP/1.1\r\n")
    assert b"x-session-id: s\r\n" in requests[0]
    assert requests[1].endswith(b"\r\n\r\ntwo")


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
        assert await client.post("/", b"", {}) == (200, b"0.")
        assert await client.post("/", b"", {}) == (200, b"1.")
    assert connections == [0, 1]


@pytest.mark.anyio
async def test_missing_answer_is_an_error():
    async def answer(reader, writer, number):
        await read(reader)

    async with served(answer) as (client, _):
        with pytest.raises(ConnectionError):
            await client.post("/", b"", {})
