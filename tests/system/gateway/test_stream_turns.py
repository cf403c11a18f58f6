"""A stream that comes faster than it is passed on takes a turn of the event loop for each piece."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from typing import Any

import pytest
from websockets.asyncio.client import connect
from weft_gateway.api.relay import PIECE_BYTES
from weft_gateway.api.turns import LIGHT_BYTES
from weft_gateway.api.websocket import _EVENTS_A_TURN
from weft_gateway.api.websocket_server import DrainingSocket
from weft_gateway.engine.sse import StreamFilter

pytestmark = [pytest.mark.system, pytest.mark.anyio]

DELTA = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta"}\n\n'
DONE = json.dumps({"type": "response.completed", "response": {"id": "resp_1", "output": []}})
END = b"event: response.completed\ndata: %b\n\n" % DONE.encode()
# In one read of the gateway.
EVENTS = 2000


async def burst(wire: Any, request: Any) -> None:
    await wire.stream(DELTA * EVENTS + END)


class Rounds:
    """Counts the rounds of the event loop."""

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
    rounds = Rounds()
    try:
        yield rounds
    finally:
        rounds.stop()


async def test_streams_are_passed_on_one_piece_to_a_round_of_the_loop(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[tuple[int, int]] = []
    feed = StreamFilter.feed

    async with engine(script=burst) as stub, weft(stub) as gateway, counting() as rounds:

        def counted(stream: StreamFilter, data: bytes) -> bytes:
            fed.append((rounds.count, len(data)))
            return feed(stream, data)

        monkeypatch.setattr(StreamFilter, "feed", counted)

        async def call() -> None:
            body = {"model": "tiny", "input": "Hello", "stream": True}
            answer = await gateway.client.post("/v1/responses", json=body)
            assert answer.content == DELTA * EVENTS + END

        await asyncio.gather(*(call() for _ in range(4)))
    large = [number for number, size in fed if size > LIGHT_BYTES]
    assert len(large) > 4
    assert len(set(large)) == len(large)
    assert max(size for _, size in fed) <= PIECE_BYTES


async def test_a_websocket_passes_on_a_bounded_number_of_events_in_a_round_of_the_loop(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    send = DrainingSocket.send

    async with engine(script=burst) as stub, weft(stub) as gateway, counting() as rounds:

        async def counted(socket: DrainingSocket, message: Any) -> None:
            sent.append(rounds.count)
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
