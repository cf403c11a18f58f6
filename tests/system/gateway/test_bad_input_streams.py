"""Streams that break inside a tool call, and clients and listeners that disconnect or do not read.
Only complete tool calls are dispatched, and no memory or connection leaks. `weft` checks the
process table.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from support.waiting import DEADLINE_S
from weft_gateway.telemetry import listeners as waiting

pytestmark = [pytest.mark.system, pytest.mark.anyio]

TOOLS = [{"type": "function", "function": {"name": name}} for name in "fg"]
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How far?"}]
NAMED = {"x-session-id": "run"}
BODY = {"messages": MESSAGES, "tools": TOOLS, "stream": True}


def chunk(arguments: str, *, index: int = 0, name: str = "") -> bytes:
    call: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if name:
        call |= {"id": f"call-{name}", "type": "function"}
        call["function"]["name"] = name
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
    return b"data: %b\n\n" % json.dumps({"id": "c", "choices": [choice]}).encode()


COMPLETE = chunk('{"a": 1}', name="f")
PARTIAL = (chunk('{"b": ', index=1, name="g"), chunk('{"c": 2', index=1))


async def abort(wire: Any) -> None:
    wire.writer.transport.abort()


async def end_stream(wire: Any) -> None:
    await wire.send(b"0\r\n\r\n")


async def end_within_a_frame(wire: Any) -> None:
    await wire.pieces(chunk("}}", index=1)[:-9])


@pytest.mark.parametrize("stop", [abort, end_stream, end_within_a_frame])
async def test_a_stream_cut_inside_a_tool_call_dispatches_only_complete_calls(
    stop: Any, engine: Any, weft: Any, until: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.stream(COMPLETE, *PARTIAL, end=False)
        await stop(wire)

    async with engine(script=script) as stub, weft(stub) as gateway:
        path = "/v1/sessions/run/events"
        await gateway.client.post("/v1/sessions", json={"id": "run"})
        async with gateway.client.stream("GET", path) as events:
            lines = events.aiter_lines()
            assert await anext(lines) == ": listening"
            body = {**BODY, "weft": {"tool_dispatch": True, "prefill_next": True}}
            got = await gateway.call(body=body, headers={**NAMED, "x-request-id": "r"})
            # The second call shows that the first one produced no further event.
            again = await gateway.call(body=body, headers={**NAMED, "x-request-id": "s"})
            assert again.status_code == 200
            received = []
            async with asyncio.timeout(DEADLINE_S):
                while len(received) < 2:
                    line = await anext(lines)
                    received += [json.loads(line[6:])] if line.startswith("data: ") else []
        assert [(h["request_id"], h["tool_call"]["function"]["name"]) for h in received] == [
            ("r", "f"),
            ("s", "f"),
        ]
        frames = got.text.split("\n\n")
        dispatched = [frame for frame in frames if "tool_call_dispatch" in frame]
        assert len(dispatched) == 1
        assert '"name":"f"' in dispatched[0]
        # The stream ends with an error, without an end marker.
        assert "[DONE]" not in got.text
        assert json.loads(frames[-2].partition("data: ")[2])["error"]["code"]
        receipt = (await gateway.client.get("/v1/receipts/r")).json()
        assert receipt["outcome"] == "error"
        assert [tool["name"] for tool in receipt["tools_dispatched"]] == ["f"]
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["calls"], session["errors"], session["calls_in_flight"]) == (2, 2, 0)
        # A broken turn predicts no next turn.
        assert len(gateway.parts.prefills) == len(gateway.parts.next_turns) == 0
        assert len(stub.requests) == 2
        await until(lambda: not gateway.parts.listeners._of)


def connect(gateway: Any, head: bytes, *, receive_bytes: int = 0) -> socket.socket:
    """Connect a raw socket and send the head. HTTP libraries do not offer this control."""
    host, port = gateway.url.removeprefix("http://").split(":")
    client = socket.socket()
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.connect((host, int(port)))
    client.sendall(head)
    return client


def request(path: str, body: Any, cut: int = 0) -> bytes:
    raw = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nx-session-id: run\r\nx-weft-tool-dispatch: 1\r\n"
        f"content-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
    ).encode()
    return head + raw[: len(raw) - cut]


@pytest.mark.parametrize("path", ["/v1/hints/prefill", "/v1/hints/tags", "/v1/hints/priority"])
async def test_a_client_that_disconnects_inside_a_hint_starts_no_work(
    path: str, engine: Any, weft: Any, until: Any
) -> None:
    async with engine(canned={"/weft/kv": {}}) as stub, weft(stub) as gateway:
        body = {"model": "tiny", "session_id": "run", "messages": MESSAGES, "tags": []}
        connect(gateway, request(path, body, cut=5)).close()
        await gateway.call(body={"session_id": "other"})
        listed = (await gateway.client.get("/v1/sessions")).json()["data"]
        assert [session["id"] for session in listed] == ["other"]
        assert len(gateway.parts.prefills) == 0
        assert len(stub.requests) == 1


async def test_a_prefill_completes_after_its_client_disconnects(
    engine: Any, weft: Any, until: Any
) -> None:
    go = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        await go.wait()
        await wire.plain({"choices": []})

    async with engine(script=script, canned={"/weft/kv": {}}) as stub, weft(stub) as gateway:
        body = {"model": "tiny", "messages": MESSAGES, "session_id": "run", "ttl_s": 0.3}
        client = connect(gateway, request("/v1/hints/prefill", body))
        await until(lambda: stub.requests)
        client.close()
        go.set()
        await until(lambda: gateway.in_flight() == 0)
        # The handle is not used: it expires, and the engine releases its blocks.
        await until(lambda: len(gateway.parts.prefills) == 0)
        await until(lambda: [r.json["action"] for r in stub.other if "kv" in r.target])
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["calls"], session["calls_in_flight"], session["errors"]) == (1, 0, 0)


async def test_an_extension_is_aborted_when_its_client_disconnects(
    engine: Any, weft: Any, until: Any
) -> None:
    closed = 0

    async def script(wire: Any, request: Any) -> None:
        nonlocal closed
        if request.json.get("max_tokens") == 1:
            await wire.plain({"choices": []})
            return
        await wire.stream(COMPLETE, *PARTIAL, end=False)
        await wire.closed()
        closed += 1

    async with engine(script=script, canned={"/weft/kv": {}}) as stub, weft(stub) as gateway:
        prefill = {"model": "tiny", "messages": MESSAGES, "tools": TOOLS, "session_id": "run"}
        handle = (await gateway.client.post("/v1/hints/prefill", json=prefill)).json()["id"]
        await until(lambda: gateway.in_flight() == 0)
        turn = {"model": "tiny", **BODY, "messages": [*MESSAGES, {"role": "user", "content": "x"}]}
        for path in (f"/v1/hints/prefill/{handle}/extend", "/v1/chat/completions"):
            before = closed
            client = connect(gateway, request(path, turn))
            await until(lambda: gateway.in_flight() == 1)
            await until(lambda before=before: len(stub.requests) == 2 + before)
            client.close()
            await until(lambda before=before: closed == before + 1)
            await until(lambda: gateway.in_flight() == 0)
        trace = (await gateway.client.get("/v1/sessions/run/story")).json()
        assert [r["outcome"] for r in trace["receipts"]] == ["aborted", "aborted"]
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["calls"], session["errors"], session["calls_in_flight"]) == (3, 0, 0)
        assert len(gateway.parts.prefills) == 1
        assert len(gateway.parts.next_turns) == 0


async def test_a_listener_is_removed_whenever_it_disconnects(
    engine: Any, weft: Any, until: Any
) -> None:
    head = b"GET /v1/sessions/run/events HTTP/1.1\r\nhost: x\r\n\r\n"
    async with engine() as stub, weft(stub) as gateway:
        parts = gateway.parts
        await gateway.client.post("/v1/sessions", json={"id": "run"})
        for number in range(200):
            client = connect(gateway, head)
            if number % 3 == 1:
                await asyncio.sleep(0)
            elif number % 3 == 2:
                await until(lambda: parts.listeners._of)
            # Reset the connection, as the kernel does for a killed process.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        await until(lambda: not parts.listeners._of)
        # No listener remains that would occupy a place.
        async with gateway.client.stream("GET", "/v1/sessions/run/events") as events:
            assert events.status_code == 200
        await until(lambda: not parts.listeners._of)


async def test_a_listener_that_never_reads_has_a_bounded_buffer_and_blocks_no_call(
    engine: Any, weft: Any, until: Any
) -> None:
    large = chunk(json.dumps({"text": "x" * 300_000}), name="f")

    async def script(wire: Any, request: Any) -> None:
        await wire.stream(large, b"data: [DONE]\n\n")

    async with engine(script=script) as stub, weft(stub) as gateway:
        head = b"GET /v1/sessions/run/events HTTP/1.1\r\nhost: x\r\n\r\n"
        await gateway.client.post("/v1/sessions", json={"id": "run"})
        client = connect(gateway, head, receive_bytes=4096)
        try:
            await until(lambda: gateway.parts.listeners._of)
            ((listener,),) = gateway.parts.listeners._of.values()
            for _ in range(60):
                got = await gateway.call(body=BODY, headers=NAMED)
                assert got.status_code == 200
            assert listener.lost > 0
            assert listener._bytes <= waiting.MAX_WAITING_BYTES
            assert sum(map(len, listener._events)) == listener._bytes
        finally:
            client.close()
        await until(lambda: not gateway.parts.listeners._of)
