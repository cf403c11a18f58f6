"""Clients that wait for a stream: what they get meanwhile, and how their calls end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from support import agents
from support.raw_client import WHOLE as WHOLE_CALL
from support.raw_client import raw
from support.silent_hop import silent_hop
from support.waiting import DEADLINE_S, until
from websockets.asyncio.client import connect
from weft_gateway.engine.errors import ShuttingDown

pytestmark = [pytest.mark.system, pytest.mark.anyio]

EVERY_S = 0.1
# Silence that a hop allows, and for which the engine is silent.
CUT_S, SILENT_S = 1.0, 2.0
COMMENT = b": keep-alive\n\n"
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
EVENT = b'event: keepalive\ndata: {"type":"keepalive"}\n\n'
CODEX = {"originator": "codex_exec"}
CAN_WAIT = {"x-weft-batch": "1"}


def frame(name: str, **members: Any) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(members)}\n\n".encode()


def chunk(**members: Any) -> bytes:
    return frame("", id="c", object="chat.completion.chunk", created=1, model="tiny", **members)


def choice(finish: str | None = None, **members: Any) -> dict[str, Any]:
    return {"index": 0, "finish_reason": finish, **members}


def response(kind: str, number: int, **members: Any) -> bytes:
    return frame(kind, type=kind, sequence_number=number, **members)


ITEM = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
}
WHOLE = {"id": "resp_1", "object": "response", "model": "tiny", "output": [ITEM]}
AT: dict[str, Any] = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
STREAMS = {
    "/v1/chat/completions": [
        chunk(choices=[choice(delta={"role": "assistant", "content": "Hello."})]),
        chunk(choices=[choice("stop", delta={})]),
        b"data: [DONE]\n\n",
    ],
    "/v1/completions": [
        frame("", id="c", object="text_completion", created=1, model="tiny",
              choices=[choice("stop", text="Hello.", logprobs=None)]),
        b"data: [DONE]\n\n",
    ],
    "/v1/responses": [
        response("response.created", 0, response=WHOLE | {"output": []}),
        response("response.output_item.added", 1, output_index=0, item=ITEM | {"content": []}),
        response("response.content_part.added", 2, part=ITEM["content"][0] | {"text": ""}, **AT),
        response("response.output_text.delta", 3, delta="Hello.", logprobs=[], **AT),
        response("response.output_item.done", 4, output_index=0, item=ITEM),
        response("response.completed", 5, response=WHOLE | {"status": "completed"}),
    ],
    "/v1/messages": [
        frame("message_start", type="message_start", message={
            "id": "msg_1", "type": "message", "role": "assistant", "model": "tiny", "content": [],
            "stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 0}}),
        frame("content_block_start", type="content_block_start", index=0,
              content_block={"type": "text", "text": ""}),
        frame("content_block_delta", type="content_block_delta", index=0,
              delta={"type": "text_delta", "text": "Hello."}),
        frame("content_block_stop", type="content_block_stop", index=0),
        frame("message_delta", type="message_delta", delta={"stop_reason": "end_turn"},
              usage={"output_tokens": 1}),
        frame("message_stop", type="message_stop"),
    ],
}  # fmt: skip


class Slow:
    """The script of an engine that is silent at two places until the test says so."""

    def __init__(self) -> None:
        self.head = asyncio.Event()
        self.rest = asyncio.Event()

    async def __call__(self, wire: Any, request: Any) -> None:
        pieces = STREAMS[request.target]
        await self.head.wait()
        if not request.json.get("stream"):
            await wire.plain({"object": "chat.completion", "choices": []})
            return
        # The silence is within an event.
        await wire.stream(pieces[0], pieces[1][:9], end=False)
        await self.rest.wait()
        await wire.pieces(pieces[1][9:], *pieces[2:])


@contextlib.asynccontextmanager
async def asked(gateway: Any, path: str, **headers: str) -> AsyncIterator[Any]:
    """Ask for a stream."""
    body = {"model": "tiny", "messages": [], "input": "Hi", "prompt": "Hi", "stream": True}
    async with gateway.client.stream("POST", path, json=body, headers=headers) as got:
        yield got


async def read(pieces: AsyncIterator[bytes], part: bytes, times: int, before: bytes = b"") -> bytes:
    """Return the bytes of the stream until they contain `part` this many times."""
    got = before
    async with asyncio.timeout(DEADLINE_S):
        while got.count(part) < times:
            got += await anext(pieces)
    return got


@pytest.mark.parametrize(
    ("path", "part", "headers"),
    [
        ("/v1/chat/completions", COMMENT, {}),
        ("/v1/chat/completions", COMMENT, CODEX),
        ("/v1/completions", COMMENT, {}),
        ("/v1/responses", COMMENT, {}),
        ("/v1/responses", EVENT, CODEX),
        ("/v1/messages", PING, {}),
    ],
)
async def test_a_silent_stream_has_keep_alives_between_its_events(
    path: str, part: bytes, headers: dict[str, str], engine: Any, weft: Any
) -> None:
    slow = Slow()
    async with engine(script=slow) as stub, weft(stub, heartbeat_s=EVERY_S) as gateway:
        async with asked(gateway, path, **headers) as got:
            assert got.status_code == 200
            assert got.headers["content-type"].startswith("text/event-stream")
            pieces = got.aiter_raw()
            text = await read(pieces, part, 3)
            assert text == part * text.count(part)
            slow.head.set()
            begun = text.count(part)
            text = await read(pieces, part, begun + 3, text)
            slow.rest.set()
            async with asyncio.timeout(DEADLINE_S):
                text += b"".join([piece async for piece in pieces])
        receipt = (await gateway.client.get(f"/v1/receipts/{got.headers['x-request-id']}")).json()
    assert text.replace(part, b"") == b"".join(STREAMS[path])
    assert receipt["outcome"] == "ok"


async def test_the_head_of_a_plain_call_is_not_sent_early(engine: Any, weft: Any) -> None:
    slow = Slow()
    async with (
        engine(script=slow) as stub,
        weft(stub, heartbeat_s=EVERY_S) as gateway,
        raw(gateway) as plain,
        asked(gateway, "/v1/chat/completions") as got,
    ):
        await plain.send(WHOLE_CALL)
        await read(got.aiter_raw(), COMMENT, 4)
        slow.head.set()
        slow.rest.set()
        status, headers, answer = await plain.answer()
    assert (status, answer["object"]) == (200, "chat.completion")
    assert "x-weft-replica" in headers


async def test_no_keep_alives_if_they_are_off(engine: Any, weft: Any) -> None:
    slow = Slow()
    async with engine(script=slow) as stub, weft(stub, heartbeat_s=0) as gateway:
        call = asyncio.create_task(
            gateway.call(body={"stream": True, "messages": []}, headers={"x-weft-program": "off"})
        )
        await asyncio.sleep(3 * EVERY_S)
        slow.head.set()
        slow.rest.set()
        got = await call
    assert got.content == b"".join(STREAMS["/v1/chat/completions"])


async def refuses(wire: Any, request: Any) -> None:
    await asyncio.sleep(3 * EVERY_S)
    await wire.plain({"error": {"message": "Too long.", "type": "x", "code": None}}, "400 Bad")


async def too_long(wire: Any, request: Any) -> None:
    await asyncio.sleep(3 * EVERY_S)
    what = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
    await wire.plain(
        {"error": {"message": what, "type": "BadRequestError", "code": 400}}, "400 Bad"
    )


async def closes(wire: Any, request: Any) -> None:
    await asyncio.sleep(3 * EVERY_S)
    wire.writer.close()


async def not_a_stream(wire: Any, request: Any) -> None:
    await asyncio.sleep(3 * EVERY_S)
    await wire.plain({"object": "chat.completion"})


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (refuses, "Too long."),
        (too_long, r"^This model's maximum|'prompt is too long: \d+ tokens > 4096 maximum'"),
        (closes, "closed"),
        (not_a_stream, "did not answer with a stream"),
    ],
)
async def test_an_error_after_keep_alives_is_an_event_that_clients_raise(
    script: Any, reason: str, engine: Any, weft: Any
) -> None:
    async with engine(script=script) as stub, weft(stub, heartbeat_s=EVERY_S) as gateway:
        ai = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0)
        claude = anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k", max_retries=0)
        messages: Any = [{"role": "user", "content": "Hi"}]
        calls: list[Any] = [
            lambda: ai.chat.completions.create(model="tiny", messages=messages, stream=True),
            lambda: ai.completions.create(model="tiny", prompt="Hi", stream=True),
            lambda: ai.responses.create(model="tiny", input="Hi", stream=True),
            lambda: claude.messages.create(
                model="tiny", messages=messages, max_tokens=9, stream=True
            ),
        ]
        async with ai, claude:
            for call in calls:
                with pytest.raises((openai.APIError, anthropic.APIError), match=reason):
                    async for _ in await call():
                        pass
        assert len(stub.requests) == len(calls)
        assert gateway.in_flight() == 0
        async with asked(gateway, "/v1/responses", **CODEX) as got:
            text = (await got.aread()).replace(EVENT, b"")
        receipt = (await gateway.client.get(f"/v1/receipts/{got.headers['x-request-id']}")).json()
        assert receipt["outcome"] == "error"
        kinds = [json.loads(line[6:])["type"] for line in text.splitlines() if line[:5] == b"data:"]
        assert kinds == ["error", "response.failed"]


async def test_a_call_that_the_gateway_holds_has_keep_alives(engine: Any, weft: Any) -> None:
    slow = Slow()
    async with engine(script=slow) as stub, weft(stub, heartbeat_s=EVERY_S) as gateway:
        for replica in gateway.parts.registry:
            replica.slots = 8
        # Calls that can wait use half of the slots beside a client.
        calls = [asyncio.create_task(gateway.call())]
        await until(lambda: len(stub.requests) == 1, "the client's call")
        calls += [asyncio.create_task(gateway.call(headers=CAN_WAIT)) for _ in range(4)]
        await until(lambda: len(stub.requests) == 5, "calls that can wait")
        async with asked(gateway, "/v1/chat/completions", **CAN_WAIT) as got:
            pieces = got.aiter_raw()
            text = await read(pieces, COMMENT, 3)
            assert len(stub.requests) == 5
            slow.head.set()
            slow.rest.set()
            async with asyncio.timeout(DEADLINE_S):
                text += b"".join([piece async for piece in pieces])
        await asyncio.gather(*calls)
    assert text.replace(COMMENT, b"") == b"".join(STREAMS["/v1/chat/completions"])


@pytest.mark.parametrize("end", ["the client leaves", "the gateway stops"])
async def test_a_call_with_keep_alives_can_be_ended(end: str, engine: Any, weft: Any) -> None:
    async with engine(script=Slow()) as stub, weft(stub, heartbeat_s=EVERY_S) as gateway:
        async with asked(gateway, "/v1/messages") as got:
            pieces = got.aiter_raw()
            await read(pieces, PING, 2)
            if end == "the gateway stops":
                gateway.parts.disconnects.end_all(ShuttingDown("It stops."))
                text = b"".join([piece async for piece in pieces]).replace(PING, b"")
                assert text.startswith(b"event: error\n")
                assert b"It stops." in text
        # The exchange with the engine has ended, although the engine is still silent.
        await until(lambda: gateway.in_flight() == 0, "the call has ended")


async def test_listeners_have_keep_alives(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, heartbeat_s=EVERY_S) as gateway:
        await gateway.call(headers={"x-weft-program": "run"})
        async with gateway.client.stream("GET", "/v1/sessions/run/events") as got:
            await read(got.aiter_raw(), b": still here\n\n", 2)


async def test_another_replica_can_take_a_call_after_keep_alives(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.stream(*STREAMS[request.target])

    async with (
        engine(script=script) as first,
        engine(script=script) as second,
        weft(first, second, heartbeat_s=EVERY_S, connect_timeout_s=0.5) as gateway,
    ):
        first.refuse()
        with full_port(int(first.url.rpartition(":")[2])):
            body = {"stream": True, "messages": []}
            # One for each replica.
            calls = [gateway.call(body=body, headers={"x-weft-program": name}) for name in "ab"]
            got = await asyncio.gather(*calls)
        assert (len(first.requests), len(second.requests)) == (0, 2)
    whole = b"".join(STREAMS["/v1/chat/completions"])
    assert [answer.content.replace(COMMENT, b"") for answer in got] == [whole, whole]
    assert any(answer.content.startswith(COMMENT) for answer in got)


@contextlib.contextmanager
def full_port(port: int) -> Iterator[None]:
    """Make connections to a port wait without an answer, as to a host that has disappeared."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen(0)
        for _ in range(3):
            plug = stack.enter_context(socket.socket())
            plug.setblocking(False)
            plug.connect_ex(("127.0.0.1", port))
        yield


def websocket(gateway: Any, **headers: str) -> Any:
    url = gateway.url.replace("http", "ws", 1) + "/v1/responses"
    return connect(url, additional_headers=headers, proxy=None)


async def test_a_websocket_has_pings_and_events_for_clients_that_count_them(
    engine: Any, weft: Any
) -> None:
    slow = Slow()
    async with (
        engine(script=slow) as stub,
        weft(stub, heartbeat_s=EVERY_S) as gateway,
        websocket(gateway) as other,
        websocket(gateway, **CODEX) as codex,
    ):
        for client in (other, codex):
            await client.send('{"type": "response.create", "model": "tiny", "input": "Hi"}')
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(3):
                assert json.loads(await codex.recv()) == {"type": "keepalive"}
            slow.head.set()
            slow.rest.set()
            names = {}
            for client in (other, codex):
                names[client] = kinds = []
                while kinds[-1:] != ["response.completed"]:
                    kinds.append(json.loads(await client.recv())["type"])
        assert "keepalive" not in names[other]
        # Without a response in progress, there is only a ping.
        assert await silent(codex)
        assert [kind for kind in names[codex] if kind != "keepalive"] == names[other]


async def silent(client: Any) -> bool:
    """Whether nothing arrives during several intervals."""
    try:
        async with asyncio.timeout(4 * EVERY_S):
            await client.recv()
    except TimeoutError:
        return True
    return False


async def test_an_error_on_a_websocket_has_its_status_after_keep_alives(
    engine: Any, weft: Any
) -> None:
    async with (
        engine(script=refuses) as stub,
        weft(stub, heartbeat_s=EVERY_S) as gateway,
        websocket(gateway, **CODEX) as codex,
    ):
        await codex.send('{"type": "response.create", "model": "tiny", "input": "Hi"}')
        async with asyncio.timeout(DEADLINE_S):
            while (got := json.loads(await codex.recv()))["type"] == "keepalive":
                pass
    assert (got["type"], got["status"], got["error"]["message"]) == ("error", 400, "Too long.")


@pytest.mark.parametrize("place", ["before the head", "within the stream"])
async def test_clients_finish_through_a_hop_that_ends_silent_connections(
    place: str, engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        pieces = STREAMS[request.target]
        if place == "before the head":
            await asyncio.sleep(SILENT_S)
            await wire.stream(*pieces)
        else:
            await wire.stream(*pieces[:1], end=False)
            await asyncio.sleep(SILENT_S)
            await wire.pieces(*pieces[1:])

    async with (
        engine(script=script) as stub,
        weft(stub, heartbeat_s=EVERY_S) as gateway,
        silent_hop(int(gateway.url.rpartition(":")[2]), CUT_S) as hop,
    ):
        ai = openai.AsyncOpenAI(base_url=f"{hop.url}/v1", api_key="k", max_retries=0)
        claude = anthropic.AsyncAnthropic(base_url=hop.url, api_key="k", max_retries=0)
        messages: Any = [{"role": "user", "content": "Hi"}]

        async def chat() -> str | None:
            async with ai.chat.completions.stream(model="tiny", messages=messages) as stream:
                return (await stream.get_final_completion()).choices[0].message.content

        async def completion() -> str:
            stream = await ai.completions.create(model="tiny", prompt="Hi", stream=True)
            return "".join([part.choices[0].text async for part in stream])

        async def response() -> str:
            async with ai.responses.stream(model="tiny", input="Hi") as stream:
                return (await stream.get_final_response()).output_text

        async def message() -> str:
            options: Any = {"model": "tiny", "max_tokens": 9, "messages": messages}
            async with claude.messages.stream(**options) as stream:
                return await stream.get_final_text()

        async def socket_response() -> str:
            url = hop.url.replace("http", "ws", 1) + "/v1/responses"
            async with connect(url, proxy=None, ping_interval=None) as client:
                await client.send('{"type": "response.create", "model": "tiny", "input": "Hi"}')
                while (got := json.loads(await client.recv()))["type"] != "response.completed":
                    pass
            text: str = got["response"]["output"][0]["content"][0]["text"]
            return text

        async with asyncio.timeout(DEADLINE_S), ai, claude:
            got = await asyncio.gather(
                chat(), completion(), response(), message(), socket_response()
            )
        assert got == ["Hello."] * 5


# The limit of Codex on the silence of its streams.
WATCHDOG = ("-c", "model_providers.weft.stream_idle_timeout_ms=2000")
HTTP = ("-c", "model_providers.weft.supports_websockets=false")


async def late_answer(wire: Any, request: Any) -> None:
    if request.json.get("stream"):
        await asyncio.sleep(3 * SILENT_S)
        await wire.stream(*STREAMS[request.target.partition("?")[0]])
    else:
        content = [{"type": "text", "text": "Not streamed."}]
        message = {"id": "m", "type": "message", "role": "assistant", "content": content}
        usage = {"input_tokens": 1, "output_tokens": 1}
        await wire.plain(message | {"model": "x", "stop_reason": "end_turn", "usage": usage})


@pytest.mark.parametrize("options", [(), HTTP], ids=["websocket", "http"])
async def test_codex_waits(
    options: tuple[str, ...], tmp_path: Path, engine: Any, weft: Any
) -> None:
    async with (
        engine(script=late_answer, models=("weft-demo",)) as stub,
        weft(stub, heartbeat_s=EVERY_S) as gateway,
        silent_hop(int(gateway.url.rpartition(":")[2]), 2 * CUT_S) as hop,
    ):
        codex = agents.codex(hop.url, tmp_path / "home", tmp_path)
        command = ("exec", "--skip-git-repo-check", *WATCHDOG, *options, "Say hello.")
        ran = await asyncio.to_thread(codex.run, *command)
        assert ran.status == 0, ran.output
        assert "Reconnecting" not in ran.output
        assert ran.output.rstrip().endswith("Hello.")
        assert len(stub.requests) == 1


async def test_claude_code_waits(tmp_path: Path, engine: Any, weft: Any) -> None:
    async with (
        engine(script=late_answer, models=("weft-demo",)) as stub,
        weft(stub, heartbeat_s=EVERY_S) as gateway,
        silent_hop(int(gateway.url.rpartition(":")[2]), 2 * CUT_S) as hop,
    ):
        claude = agents.claude_code(hop.url, tmp_path / "home", tmp_path)
        ran = await asyncio.to_thread(claude.run, "-p", "Say hello.")
    assert ran.status == 0, ran.output
    assert ran.output.rstrip().endswith("Hello.")
