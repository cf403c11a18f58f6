"""One limit for the bytes of all bodies, per process and per key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any

import pytest
from httpx import AsyncClient
from support.raw_client import Raw, raw
from support.waiting import DEADLINE_S
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

pytestmark = [pytest.mark.system, pytest.mark.anyio]

MOST = 1_048_576
# Two of them exceed a quarter of MOST.
SIZE = 200_000
KEYS = ("a", "b", "c", "d", "e", "f")


def head(
    key: str, path: str = "/v1/chat/completions", framing: str = f"content-length: {SIZE}"
) -> bytes:
    name = "x-api-key: " if "messages" in path else "authorization: bearer "
    return f"POST {path} HTTP/1.1\r\nhost: x\r\n{name}{key}\r\n{framing}\r\n\r\n".encode()


def body(**more: Any) -> bytes:
    empty = json.dumps({"model": "tiny", "messages": [], "user": ""} | more).encode()
    return empty.replace(b'"user": "', b'"user": "' + b"x" * (SIZE - len(empty)))


class Waiting:
    """An engine that answers its calls when the test says so."""

    def __init__(self) -> None:
        self.calls: list[asyncio.Event] = []

    async def __call__(self, wire: Any, request: Any) -> None:
        answer = asyncio.Event()
        self.calls.append(answer)
        await answer.wait()
        await wire.plain({"id": "x", "object": "chat.completion"})


Start = Callable[[], AbstractAsyncContextManager[Raw]]


@asynccontextmanager
async def scene(engine: Any, weft: Any) -> AsyncIterator[tuple[Waiting, Start, Any]]:
    """Run a gateway with MOST bytes. Yield its engine, a function that connects, and it."""
    waiting = Waiting()
    settings = {"api_keys": ",".join(KEYS), "body_bytes": MOST}
    async with engine(script=waiting) as stub, weft(stub, **settings) as gateway:
        yield waiting, lambda: raw(gateway), gateway
        assert "weft_body_bytes 0.0" in (await gateway.client.get("/metrics")).text


async def test_a_key_may_hold_a_quarter(engine: Any, weft: Any, until: Any) -> None:
    async with scene(engine, weft) as (waiting, connect, _), connect() as first:
        await first.send(head("a") + body())
        await until(lambda: len(waiting.calls) == 1)
        # The head is enough for the answer.
        for path in ("/v1/chat/completions", "/v1/messages", "/tokenize", "/v1/hints/prefill"):
            async with connect() as client:
                await client.send(head("a", path))
                status, headers, found = await client.answer()
                assert (status, headers["retry-after"]) == (429, "2")
                if "messages" in path:
                    assert found["error"]["type"] == "rate_limit_error"
                else:
                    assert found["error"]["code"] == "too_many_body_bytes_of_key"
        # A body of unknown size is refused as it grows.
        async with connect() as client:
            await client.send(head("a", framing="transfer-encoding: chunked"))
            await client.send(b"%x\r\n%b\r\n" % (SIZE // 2, body()[: SIZE // 2]))
            assert (await client.answer())[0] == 429
        # Other keys, and small bodies of this one, pass.
        for key, sent in (("b", body()), ("a", b'{"model": "tiny", "messages": []}')):
            async with connect() as client:
                count = len(waiting.calls)
                await client.send(head(key, framing=f"content-length: {len(sent)}") + sent)
                await until(lambda count=count: len(waiting.calls) > count)
                waiting.calls[-1].set()
                assert (await client.answer())[0] == 200
        # The bytes of a call that has ended are free.
        waiting.calls[0].set()
        assert (await first.answer())[0] == 200
        await first.send(head("a") + body())
        await until(lambda: len(waiting.calls) == 4)
        waiting.calls[-1].set()
        assert (await first.answer())[0] == 200


async def test_all_keys_together_have_a_limit(engine: Any, weft: Any, until: Any) -> None:
    async with scene(engine, weft) as (waiting, connect, gateway), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect()) for _ in KEYS]
        for number, key in enumerate(KEYS[:5], 1):
            await clients[number].send(head(key) + body())
            await until(lambda number=number: len(waiting.calls) == number)
        await clients[0].send(head(KEYS[5]))
        status, headers, found = await clients[0].answer()
        assert (status, headers["retry-after"]) == (503, "2")
        assert found["error"]["code"] == "too_many_body_bytes"
        # A client that leaves frees its bytes.
        clients[1].writer.transport.abort()
        await until(lambda: gateway.parts.bodies.total == 4 * SIZE)
        async with connect() as client:
            await client.send(head(KEYS[5]) + body())
            await until(lambda: len(waiting.calls) == 6)
            for call in waiting.calls:
                call.set()
            assert (await client.answer())[0] == 200


async def test_the_declared_size_counts_while_the_body_arrives(
    engine: Any, weft: Any, until: Any
) -> None:
    async with scene(engine, weft) as (waiting, connect, gateway):
        async with connect() as slow, connect() as client:
            await slow.send(head("a") + body()[:1000])
            await until(lambda: gateway.parts.bodies.total == SIZE)
            await client.send(head("a"))
            assert (await client.answer())[0] == 429
        await until(lambda: gateway.parts.bodies.total == 0)
        assert waiting.calls == []


async def test_items_count_that_a_request_refers_to(engine: Any, weft: Any, until: Any) -> None:
    text = {"type": "output_text", "text": "x" * 70_000}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [text]}
    go, numbers = asyncio.Event(), count(1)

    async def script(wire: Any, request: Any) -> None:
        if len(request.raw) > SIZE:
            await go.wait()
        name = f"resp_{next(numbers)}"
        await wire.plain({"id": name, "object": "response", "output": [item]})

    async with (
        engine(script=script) as stub,
        weft(stub, api_keys="a", body_bytes=MOST) as gateway,
        AsyncClient(base_url=gateway.url, headers={"authorization": "bearer a"}) as client,
    ):

        def call(**more: Any) -> Any:
            return client.post("/v1/responses", json={"model": "tiny", "input": "x"} | more)

        assert (await call()).status_code == 200
        assert (await call(previous_response_id="resp_1")).status_code == 200
        references = [{"type": "item_reference", "id": "msg_1"}] * 3
        running = asyncio.create_task(call(input=references))
        await until(lambda: len(stub.requests) == 3)
        held = gateway.parts.bodies.total
        refused = [await call(previous_response_id="resp_2")]
        refused.append(await client.get("/v1/responses/resp_2/input_items"))
        go.set()
        assert (await running).status_code == 200
        assert held > 3 * 70_000
        codes = [(got.status_code, got.json()["error"]["code"]) for got in refused]
        assert codes == [(429, "too_many_body_bytes_of_key")] * 2
        assert (await client.get("/v1/responses/resp_2/input_items")).status_code == 200
        await until(lambda: gateway.parts.bodies.total == 0)


# WebSockets


def socket(gateway: Any, key: str) -> Any:
    url = gateway.url.replace("http", "ws", 1) + "/v1/responses"
    headers = {"authorization": f"bearer {key}"}
    return connect(url, proxy=None, additional_headers=headers, max_size=None)


async def begin(client: ClientConnection, size: int) -> None:
    """Send the first bytes of a message of twice this size."""
    # The head of a text frame with a mask of zeros.
    frame = b"\x81\xff" + (2 * size).to_bytes(8, "big") + bytes(4) + b" " * size
    client.transport.write(frame)


async def error_of(client: ClientConnection) -> tuple[int, str, int]:
    """Return status and code of the error, and the code with which the connection closes."""
    async with asyncio.timeout(DEADLINE_S):
        found = json.loads(await client.recv())
        with pytest.raises(ConnectionClosed) as closed:
            await client.recv()
    assert closed.value.rcvd is not None
    return found["status"], found["error"]["code"], closed.value.rcvd.code


async def test_messages_count_before_they_are_complete(engine: Any, weft: Any, until: Any) -> None:
    async with (
        scene(engine, weft) as (_, connected, gateway),
        socket(gateway, "a") as first,
        socket(gateway, "a") as second,
        connected() as client,
    ):
        await begin(first, SIZE)
        await until(lambda: gateway.parts.bodies.total >= SIZE)
        await begin(second, SIZE // 2)
        assert await error_of(second) == (429, "too_many_body_bytes_of_key", 1013)
        await client.send(head("a"))
        assert (await client.answer())[0] == 429
        first.transport.abort()
        await until(lambda: gateway.parts.bodies.total == 0)


async def test_a_message_counts_until_its_answer_ends(engine: Any, weft: Any, until: Any) -> None:
    text = json.dumps({"type": "response.create", "model": "tiny", "input": "x" * SIZE})
    async with (
        scene(engine, weft) as (waiting, connected, gateway),
        socket(gateway, "a") as client,
        connected() as other,
    ):
        await client.send(text)
        await until(lambda: len(waiting.calls) == 1)
        await other.send(head("a"))
        assert (await other.answer())[0] == 429
        await client.send(text)
        assert await error_of(client) == (429, "too_many_body_bytes_of_key", 1013)
        await until(lambda: gateway.parts.bodies.total == 0)


async def test_a_message_has_the_time_of_a_body(engine: Any, weft: Any) -> None:
    settings = {"body_timeout_s": 0.3}
    async with (
        engine() as stub,
        weft(stub, **settings) as gateway,
        socket(gateway, "a") as client,
    ):
        await client.send(json.dumps({"type": "response.processed"}))
        # A connection without a message may be idle for longer.
        await asyncio.sleep(0.5)
        await begin(client, 1000)
        assert await error_of(client) == (408, "body_timeout", 1008)
