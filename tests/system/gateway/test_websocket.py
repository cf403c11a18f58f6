"""The Responses API over a WebSocket, with the real server and a real WebSocket client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import openai
import pytest
from support.waiting import DEADLINE_S
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

pytestmark = [pytest.mark.system, pytest.mark.anyio]


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | members)}\n\n".encode()


def response(number: int, **members: Any) -> dict[str, Any]:
    stderr = {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]}
    return {"id": f"resp_{number:03}", "object": "response", "output": [stderr]} | members


class NumberedAnswers:
    """The script of an engine: answer n has the id `resp_n` and three events."""

    def __init__(self) -> None:
        self.count = 0
        self.hold: asyncio.Event | None = None

    async def __call__(self, wire: Any, request: Any) -> None:
        self.count += 1
        number = self.count
        if request.json.get("model") == "broken":
            await wire.plain({"error": {"message": "no", "code": "bad"}}, "400 Bad Request")
            return
        created = event("response.created", sequence_number=0, response=response(number, output=[]))
        await wire.stream(created, end=False)
        if self.hold is not None:
            await self.hold.wait()
        delta = event("response.output_text.delta", sequence_number=1, delta="Hi.")
        done = event("response.completed", sequence_number=2, response=response(number))
        await wire.pieces(delta[:9], delta[9:] + done)


def socket(gateway: Any, path: str = "/v1/responses", **headers: str) -> Any:
    return connect(
        gateway.url.replace("http", "ws", 1) + path,
        additional_headers={name.replace("_", "-"): value for name, value in headers.items()},
        proxy=None,
    )


async def create(client: ClientConnection, **members: Any) -> None:
    await client.send(json.dumps({"type": "response.create", "model": "tiny"} | members))


async def receive(client: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_S):
        parsed: dict[str, Any] = json.loads(await client.recv())
    return parsed


async def answer(client: ClientConnection) -> list[dict[str, Any]]:
    """Receive events up to the last one of a response."""
    events = []
    while True:
        events.append(await receive(client))
        if events[-1]["type"] in ("response.completed", "response.failed", "error"):
            return events


KINDS = ["response.created", "response.output_text.delta", "response.completed"]


async def test_the_path_can_set_the_program(engine, weft):
    async with engine(script=NumberedAnswers()) as stub, weft(stub) as gateway:
        async with socket(gateway, "/p/my%20run/v1/responses") as client:
            await create(client, input="Hello")
            await answer(client)
        assert (await gateway.client.get("/v1/sessions/my%20run")).json()["calls"] == 1


async def test_a_response_with_store_false_is_continued_on_its_connection(engine, weft):
    async with engine(script=NumberedAnswers()) as stub, weft(stub) as gateway:
        async with socket(gateway) as client:
            await create(client, input="Hello", store=False, generate=False)
            prepared = await answer(client)
            assert not stub.requests
            before = prepared[-1]["response"]["id"]
            await create(client, input=[], previous_response_id=before, store=False)
            first = (await answer(client))[-1]["response"]
            assert first["previous_response_id"] == before
            more = [{"type": "function_call_output", "call_id": "c", "output": "3"}]
            await create(client, input=more, previous_response_id=first["id"], store=False)
            for event in await answer(client):
                if "response" in event:
                    assert event["response"]["previous_response_id"] == first["id"]
        hello = {"type": "message", "role": "user", "content": "Hello"}
        assert stub.requests[0].json["input"] == [hello]
        assert stub.requests[1].json["input"] == [hello, *first["output"], *more]
        assert not stub.requests[1].json.get("previous_response_id")


async def refused(gateway: Any, path: str = "/v1/responses", **headers: str) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as raised:
        await socket(gateway, path, **headers)
    got = raised.value.response
    return got.status_code, json.loads(got.body)["error"]["code"]


async def test_closed_connections_do_not_count(engine, weft, until):
    async with (
        engine(script=NumberedAnswers()) as stub,
        weft(stub, websockets_per_tenant=1) as gateway,
    ):
        for _ in range(3):

            async def connected() -> ClientConnection | None:
                with contextlib.suppress(InvalidStatus):
                    return await socket(gateway)
                return None

            async with asyncio.timeout(DEADLINE_S):
                while (client := await connected()) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await client.close()


async def test_a_disconnect_aborts_the_call(engine, weft, until):
    script = NumberedAnswers()
    script.hold = asyncio.Event()
    async with engine(script=script) as stub, weft(stub) as gateway:
        async with socket(gateway) as client:
            await create(client, input="Hello")
            assert (await receive(client))["type"] == "response.created"
            assert gateway.in_flight() == 1
        await until(lambda: gateway.in_flight() == 0)
        script.hold.set()


async def test_messages_are_queued_and_too_many_close_the_connection(engine, weft):
    script = NumberedAnswers()
    script.hold = asyncio.Event()
    async with engine(script=script) as stub, weft(stub) as gateway, socket(gateway) as client:
        for _ in range(3):
            await create(client, input="Hello")
        await receive(client)
        assert len(stub.requests) == 1
        script.hold.set()
        kinds = [(await receive(client))["type"] for _ in range(8)]
        assert kinds == [*KINDS[1:], *KINDS, *KINDS]
        script.hold.clear()
        for _ in range(20):
            await create(client, input="Hello")
        script.hold.set()
        with pytest.raises(ConnectionClosed) as raised:  # noqa: PT012
            while True:
                await receive(client)
        assert raised.value.rcvd is not None
        assert raised.value.rcvd.code == 1008


async def test_a_message_beyond_the_limit_closes_the_connection(engine, weft):
    async with engine(script=NumberedAnswers()) as stub, weft(stub, max_body_bytes=4096) as gateway:
        async with socket(gateway) as client:
            await create(client, input="x" * 4096)
            with contextlib.suppress(ConnectionClosed):
                assert (await receive(client))["error"]["code"] == "body_too_large"
        assert not stub.requests


async def test_an_idle_connection_is_closed(engine, weft):
    async with (
        engine(script=NumberedAnswers()) as stub,
        weft(stub, websocket_idle_s=0.05) as gateway,
        socket(gateway) as client,
    ):
        with pytest.raises(ConnectionClosed) as raised:
            await receive(client)
        assert raised.value.rcvd is not None
        assert raised.value.rcvd.code == 1000


async def cut(wire: Any, request: Any) -> None:
    """The script of an engine that stops after two events."""
    created = event("response.created", sequence_number=0, response=response(1, output=[]))
    delta = event("response.output_text.delta", sequence_number=7, delta="Hi.")
    await wire.stream(created, delta, end=False)
    await asyncio.sleep(0.1)
    wire.writer.transport.abort()


async def test_a_broken_stream_ends_with_a_failed_response(engine, weft):
    async with engine(script=cut) as stub, weft(stub) as gateway, socket(gateway) as client:
        await create(client, input="Hello")
        events = [await receive(client) for _ in range(4)]
        assert [each["type"] for each in events[:2]] == KINDS[:2]
        error, failed = events[2:]
        assert (error["type"], error["sequence_number"]) == ("error", 8)
        assert error["error"]["code"] == "replica_closed"
        assert (failed["type"], failed["sequence_number"]) == ("response.failed", 9)
        assert failed["response"]["id"] == "resp_001"
        assert failed["response"]["error"]["message"] == error["message"]


async def test_a_broken_http_stream_raises_in_the_openai_client(engine, weft):
    async with engine(script=cut) as stub, weft(stub) as gateway:
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key="test", max_retries=0
        ) as client:
            stream = await client.responses.create(model="tiny", input="Hello", stream=True)
            with pytest.raises(openai.APIError, match=r"closed|broke|ended"):
                async for _ in stream:
                    pass
        got = await gateway.call("/v1/responses", body={"input": "Hello", "stream": True})
        last = [line for line in got.text.splitlines() if line.startswith("data: ")][-1]
        failed = json.loads(last.removeprefix("data: "))
        assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")


async def test_busy_websockets_count_as_connections_until_they_close(
    engine: Any, weft: Any
) -> None:
    script = NumberedAnswers()
    async with engine(script=script) as stub, weft(stub, max_connections=2) as gateway:
        for _ in range(4):
            async with socket(gateway) as client:
                await create(client)
                await answer(client)
        script.hold = asyncio.Event()
        async with socket(gateway) as one, socket(gateway) as other:
            for client in (one, other):
                await create(client)
                assert (await receive(client))["type"] == "response.created"
            refused = await gateway.client.get("/v1/models")
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "too_many_connections"
            script.hold.set()
            for client in (one, other):
                assert (await answer(client))[-1]["type"] == "response.completed"
        async with asyncio.timeout(DEADLINE_S):
            while (await gateway.client.get("/v1/models")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_pages_of_allowed_origins_may_connect(engine: Any, weft: Any) -> None:
    page = "https://app.example"
    async with engine(script=NumberedAnswers()) as stub, weft(stub, cors_origins=page) as gateway:
        async with socket(gateway, origin=page) as client:
            await create(client)
            assert (await answer(client))[-1]["type"] == "response.completed"
        other = "https://evil.example"
        assert await refused(gateway, origin=other) == (403, "origin_not_allowed")


async def test_a_too_deep_member_is_an_error_and_keeps_the_connection(
    engine: Any, weft: Any
) -> None:
    deep = "[" * 300 + "]" * 300
    message = '{"type":"response.create","generate":false,"input":"x","model":' + deep + "}"
    async with (
        engine(script=NumberedAnswers()) as stub,
        weft(stub) as gateway,
        socket(gateway) as client,
    ):
        await client.send(message)
        refused = await receive(client)
        assert (refused["type"], refused["status"]) == ("error", 400)
        await create(client)
        assert (await answer(client))[-1]["type"] == "response.completed"


async def test_a_too_deep_error_of_an_engine_is_an_event(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        body = b'{"error":{"message":' + b"[" * 300 + b"]" * 300 + b"}}"
        await wire.plain(body, "400 Bad Request")

    async with (
        engine(script=script) as stub,
        weft(stub) as gateway,
        socket(gateway) as client,
    ):
        for _ in range(2):
            await create(client)
            refused = await receive(client)
            assert (refused["type"], refused["error"]["code"]) == ("error", None)
