"""Bursts of work are divided over several iterations of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support.raw_client import raw
from websockets.asyncio.client import connect
from weft_gateway.api import body, connections
from weft_gateway.api.edge import EdgeProtocol
from weft_gateway.api.websocket import _EVENTS_A_TURN
from weft_gateway.api.websocket_server import DrainingSocket
from weft_gateway.calls.engines import Engines
from weft_gateway.calls.path import LIGHT_PIECE_BYTES, PIECE_BYTES
from weft_gateway.engine.sse import StreamFilter
from weft_gateway.programs.lineage.tracker import Lineage
from weft_gateway.runs.records import Api, Batch, LineError, Status, StoredFile, new_id

pytestmark = [pytest.mark.system, pytest.mark.anyio]

UPGRADE = (
    b"GET /v1/responses HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n"
)
DELTA = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta"}\n\n'
DONE = json.dumps({"type": "response.completed", "response": {"id": "resp_1", "output": []}})
END = b"event: response.completed\ndata: %b\n\n" % DONE.encode()
# The gateway gets these events in one read.
EVENTS = 2000
LISTED = 1000
# After any time of the test, Unix time.
LATE = 1 << 33


async def burst(wire: Any, request: Any) -> None:
    await wire.stream(DELTA * EVENTS + END)


class Iterations:
    """Counts the iterations of the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self.count += 1
        self._next = self._loop.call_soon(self._tick)

    def stop(self) -> None:
        self._next.cancel()


@contextlib.asynccontextmanager
async def counting() -> Any:
    iterations = Iterations()
    try:
        yield iterations
    finally:
        iterations.stop()


async def test_streams_forward_at_most_one_large_piece_in_each_loop_iteration(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[tuple[int, int]] = []
    feed = StreamFilter.feed

    async with engine(script=burst) as stub, weft(stub) as gateway, counting() as iterations:

        def counted(stream: StreamFilter, data: bytes) -> bytes:
            fed.append((iterations.count, len(data)))
            return feed(stream, data)

        monkeypatch.setattr(StreamFilter, "feed", counted)

        async def call() -> None:
            body = {"model": "tiny", "input": "Hello", "stream": True}
            answer = await gateway.client.post("/v1/responses", json=body)
            assert answer.content == DELTA * EVENTS + END

        await asyncio.gather(*(call() for _ in range(4)))
    large = [number for number, size in fed if size > LIGHT_PIECE_BYTES]
    assert len(large) > 4
    assert len(set(large)) == len(large)
    assert max(size for _, size in fed) <= PIECE_BYTES


async def test_large_bodies_are_read_identified_and_sent_in_separate_loop_iterations(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[tuple[str, int]] = []

    async with engine() as stub, weft(stub) as gateway, counting() as iterations:

        def count_iterations(owner: Any, name: str) -> None:
            work = getattr(owner, name)

            def counted(*args: Any, **named: Any) -> Any:
                worked.append((name, iterations.count))
                return work(*args, **named)

            monkeypatch.setattr(owner, name, counted)

        count_iterations(body, "json_object")
        count_iterations(Lineage, "ask")
        count_iterations(Engines, "scheduling_context")
        calls = [
            gateway.call(body={"messages": [{"role": "user", "content": f"{n} " * 10_000}]})
            for n in range(4)
        ]
        assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}
    names = Counter(name for name, _ in worked)
    assert names == {"json_object": 4, "ask": 4, "scheduling_context": 4}
    assert len({iteration for _, iteration in worked}) == len(worked)


async def test_a_websocket_forwards_a_bounded_number_of_events_in_each_loop_iteration(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    send = DrainingSocket.send

    async with engine(script=burst) as stub, weft(stub) as gateway, counting() as iterations:

        async def counted(socket: DrainingSocket, message: Any) -> None:
            sent.append(iterations.count)
            await send(socket, message)

        monkeypatch.setattr(DrainingSocket, "send", counted)
        url = gateway.url.replace("http", "ws", 1) + "/v1/responses"
        async with connect(url, proxy=None) as client:
            message = {"type": "response.create", "model": "tiny", "input": "Hello"}
            await client.send(json.dumps(message))
            events = [json.loads(await client.recv())["type"] for _ in range(EVENTS + 1)]
    assert events == ["response.output_text.delta"] * EVENTS + ["response.completed"]
    assert len(sent) > EVENTS
    assert max(Counter(sent).values()) <= 2 * _EVENTS_A_TURN


def store_files(gateway: Any) -> None:
    store = gateway.parts.batches.store
    for number in range(LISTED):
        name, purpose = f"{number}.jsonl", "batch"
        store.add_file(StoredFile(new_id("file-"), "public", name, purpose, 1, 1, LATE))


def store_batches(gateway: Any) -> None:
    store = gateway.parts.batches.store
    wrong = [LineError("invalid_json_line", "This line is not valid JSON.", n) for n in range(20)]
    for _ in range(LISTED):
        name, api = new_id("msgbatch_"), Api.ANTHROPIC
        batch = Batch(
            name, "public", LATE, Status.FAILED, api=api, endpoint="/v1/messages",
            input_file="file-0", window="24h", expires_s=LATE, errors=wrong,
        )  # fmt: skip
        store.save(batch)


@pytest.mark.parametrize(
    ("prepare", "path", "entries"),
    [
        (store_files, "/v1/files", LISTED),
        (store_files, "/v1/files?order=asc&purpose=batch", LISTED),
        (store_batches, "/v1/messages/batches?limit=1000", LISTED),
    ],
)
async def test_others_are_served_while_a_long_list_is_written(
    prepare: Callable[[Any], None], path: str, entries: int, engine: Any, weft: Any
) -> None:
    request = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path.encode()
    async with engine() as stub, weft(stub) as gateway, raw(gateway) as client:
        prepare(gateway)
        await client.send(request)
        listing = asyncio.create_task(client.reader.read(1))
        others = 0
        while not listing.done():
            assert (await gateway.client.get("/v1/models")).status_code == 200
            others += 1
        found = (await gateway.client.get(path)).json()
    assert others > 3
    ids = [entry["id"] for entry in found["data"]]
    assert len(set(ids)) == len(ids) == entries
    assert (found["first_id"], found["last_id"]) == (ids[0], ids[-1])
    assert not found["has_more"]


async def test_each_loop_iteration_opens_a_bounded_number_of_websockets(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    opening = DrainingSocket.open

    async with engine(script=burst) as stub, weft(stub) as gateway, counting() as iterations:

        def counted(socket: DrainingSocket, request: Any, key: bytes) -> None:
            opened.append(iterations.count)
            opening(socket, request, key)

        monkeypatch.setattr(DrainingSocket, "open", counted)
        # Any piece of work takes longer than this.
        monkeypatch.setattr(connections, "_A_TURN_S", 0.0)
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(raw(gateway)) for _ in range(30)]
            await asyncio.gather(*(client.send(UPGRADE) for client in clients))
            for client in clients:
                assert (await client.reader.readline()).startswith(b"HTTP/1.1 101 ")
    assert len(opened) == 30
    # One that is opened at once, and one that has waited.
    assert max(Counter(opened).values()) <= 2


async def test_a_websocket_is_not_opened_after_its_client_disconnects(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    queued: list[Callable[[], None]] = []
    opened: list[DrainingSocket] = []
    monkeypatch.setattr(connections.Pieces, "add", lambda _, key, piece: queued.append(piece))
    transports: list[Any] = []
    connection_made = EdgeProtocol.connection_made

    def connected(protocol: EdgeProtocol, transport: Any) -> None:
        transports.append(transport)
        connection_made(protocol, transport)

    monkeypatch.setattr(EdgeProtocol, "connection_made", connected)
    monkeypatch.setattr(DrainingSocket, "open", lambda socket, *_: opened.append(socket))
    async with engine(script=burst) as stub, weft(stub, max_connections=1) as gateway:
        async with raw(gateway) as client:
            await client.send(UPGRADE)
            await until(lambda: queued)
        transports[0].abort()
        queued[0]()
        assert not opened
        assert (await gateway.client.get("/v1/models")).status_code == 200
