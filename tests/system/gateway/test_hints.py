"""Hints over HTTP: the arguments at the engine and the fate in the client's receipt."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.simulated import ticking
from support.turns import MESSAGES
from support.waiting import DEADLINE_S
from weft_bench.virtual.engine import EngineSettings
from weft_bench.virtual.replica import Replica
from weft_bench.workloads.schema import Part
from weft_engine.engine_link import Command
from weft_engine.kv_command import KvCommand
from weft_engine.wire import CallContext

pytestmark = [pytest.mark.system, pytest.mark.anyio]

NAMED = {"x-session-id": "run"}


async def test_prompts_are_tagged_by_message_roles(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        await gateway.call(body={"messages": MESSAGES[:2]}, headers=NAMED)
        await gateway.call(body={"messages": MESSAGES}, headers=NAMED)
        await gateway.call(body={"messages": MESSAGES, "weft": {"tags": []}}, headers=NAMED)
        await gateway.call("/v1/completions", body={"prompt": "plain text"}, headers=NAMED)
        tags = [request.json["vllm_xargs"].get("weft_tags") for request in stub.requests]
        assert tags[0][1::2] == [4, 3]
        assert 100 < tags[0][0] < 400
        assert tags[1][1::2] == [4, 3, 2]
        assert tags[2] is None
        assert tags[3][1::2] == [3]
        assert "weft" not in stub.requests[2].json


async def test_tagging_can_be_turned_off(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, tag_prompts=False) as gateway:
        await gateway.call(body={"messages": MESSAGES}, headers=NAMED)
        assert "weft_tags" not in stub.requests[0].json["vllm_xargs"]


async def test_hints_of_all_dialects_reach_the_engine_and_the_receipt_lists_their_fates(
    engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub) as gateway:
        body = {
            "messages": MESSAGES,
            "weft": {"retain_s": 1e9, "reuse_priority": 1, "colour": "red"},
            "nvext": {"agent_hints": {"priority": "high"}},
        }
        await gateway.call(body=body, headers={**NAMED, "x-request-id": "a"})
        sent = stub.requests[0].json
        assert sent["vllm_xargs"]["weft_retain"] == 3600.0
        assert sent["vllm_xargs"]["weft_priority"] == 1
        assert not {"weft", "nvext"} & sent.keys()
        receipt = (await gateway.client.get("/v1/receipts/a")).json()
        fates = {hint["hint"]: hint["fate"] for hint in receipt["hints"]}
        assert fates["weft.retain_s"] == "applied, clamped"
        assert fates["weft.colour"] == "ignored: unknown"
        assert fates["nvext.agent_hints.priority"].startswith("ignored")


async def test_a_cache_control_mark_retains_the_prompt_up_to_its_message(
    engine: Any, weft: Any
) -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    marked = [{**MESSAGES[0], **mark}, *MESSAGES[1:]]
    async with engine() as stub, weft(stub) as gateway, weft(stub, tag_prompts=False) as untagged:
        for asked, messages, extra in (
            (gateway, marked, {}),
            (gateway, MESSAGES, mark),
            (untagged, marked, {}),
        ):
            headers = {**NAMED, "x-request-id": "a"}
            await asked.call(body={"messages": messages, **extra}, headers=headers)
        sent = [request.json["vllm_xargs"] for request in stub.requests]
        assert [xargs["weft_retain"] for xargs in sent] == [3600.0] * 3
        # The system message is the first span of the tags.
        assert sent[0]["weft_retain_tokens"] == sent[0]["weft_tags"][0]
        # The other two have no known position: a mark outside the messages, and an untagged prompt.
        assert not any("weft_retain_tokens" in xargs for xargs in sent[1:])
        hints = (await untagged.client.get("/v1/receipts/a")).json()["hints"]
        assert hints[0] == {
            "hint": "cache_control", "fate": "applied to the whole prompt", "by": "gateway",
        }  # fmt: skip


async def test_each_priority_step_halves_the_service(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        call = request.json["vllm_xargs"]["weft_call"]
        report = {"call": call, "service_s": 8.0, "finished": True}
        await wire.plain({}, headers={"x-weft-report": json.dumps(report)})

    async with engine(script=script) as stub, weft(stub) as gateway:
        await gateway.call(headers=NAMED)
        await gateway.call(headers=NAMED, body={"weft": {"priority": 2}})
        await gateway.call(headers=NAMED)
        services = [request.json["vllm_xargs"]["weft_service"] for request in stub.requests]
        assert services == [0.0, 2.0, 16.0]


async def test_hints_to_a_replica_without_the_plugin_are_reported_as_ignored(
    engine: Any, weft: Any
) -> None:
    async with engine(weft=False) as stub, weft(stub) as gateway:
        await gateway.call(
            body={"messages": MESSAGES, "weft": {"retain_s": 5}},
            headers={**NAMED, "x-request-id": "a"},
        )
        assert "vllm_xargs" not in stub.requests[0].json
        (fate,) = (await gateway.client.get("/v1/receipts/a")).json()["hints"]
        assert fate["fate"] == "ignored: the replica does not run the plugin"


async def test_tags_set_in_advance_apply_to_the_next_calls(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        hint = {
            "session_id": "run",
            "tags": [
                {"messages": [1, 3], "tag": "SYSTEM_PROMPT"},
                {"messages": [3, 1], "tag": "USER_QUERY"},
                {"message": 0, "tag": "GOLD"},
            ],
        }
        answer = (await gateway.client.post("/v1/hints/tags", json=hint)).json()
        assert answer["fates"][0] == "tags[0]=noted for the next calls"
        assert [fate.partition(":")[0] for fate in answer["fates"][1:]] == [
            "tags[1]=ignored",
            "tags[2]=ignored",
        ]
        await gateway.call(body={"messages": MESSAGES}, headers=NAMED)
        await gateway.call(body={"messages": MESSAGES}, headers={"x-session-id": "other"})
        first, other = (request.json["vllm_xargs"]["weft_tags"] for request in stub.requests)
        assert first[1::2] == [4, 2]
        assert other[1::2] == [4, 3, 2]


@pytest.mark.parametrize("headers", [NAMED, {"session-id": "run"}])
async def test_hint_routes_read_the_session_from_the_header(
    headers: dict[str, str], engine: Any, weft: Any
) -> None:
    async with engine(canned={"/weft/kv": {}}) as stub, weft(stub) as gateway:
        await gateway.call(body={"messages": MESSAGES}, headers=headers)
        post = gateway.client.post
        for path, hint in (("tags", {"tags": []}), ("priority", {"priority": 1})):
            got = await post(f"/v1/hints/{path}", json=hint, headers=headers)
            assert (got.status_code, got.json()["session_id"]) == (200, "run")
            named = {**hint, "session_id": "run"}
            got = await post(f"/v1/hints/{path}", json=named, headers={"x-session-id": "other"})
            assert (got.status_code, got.json()["session_id"]) == (200, "run")
            unnamed = await post(f"/v1/hints/{path}", json=hint)
            assert unnamed.status_code == 400
            assert unnamed.json()["error"]["param"] == "session_id"


async def test_priorities_and_pins_are_sent_to_all_replicas(
    engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(canned={"/weft/kv": {}}) as one,
        engine(canned={"/weft/kv": {}}) as two,
        weft(one, two, locality_threshold_tokens=0) as gateway,
    ):
        early = {"session_id": "run", "priority": 1}
        refused = await gateway.client.post("/v1/hints/priority", json=early)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "session_not_found")
        await gateway.call(headers=NAMED)
        pin = {"retain_s": 60, "retain_tokens": 512}
        hint = {"session_id": "run", "priority": 2, "ttl_s": 60, **pin}
        answer = (await gateway.client.post("/v1/hints/priority", json=hint)).json()
        assert set(answer["fates"]["priority"].values()) == {"applied"}
        asked = [
            {key: value for key, value in request.json.items() if key != "program"}
            for stub in (one, two)
            for request in stub.other
            if request.target == "/weft/kv"
        ]
        expected = [
            {"action": "retain", "ttl_s": 60.0, "tokens": 512},
            {"action": "priority", "priority": 2, "ttl_s": 60.0},
        ]
        assert asked == expected * 2


async def test_a_priority_expires_in_the_engine_without_its_gateway(engine: Any, weft: Any) -> None:
    replica = Replica("r", ticking(slots=1), EngineSettings("fcfs"))
    async with engine(canned={"/weft/kv": {}}) as stub:
        async with weft(stub) as gateway:
            await gateway.call(headers=NAMED)
            hint = {"session_id": "run", "priority": 2, "ttl_s": 60}
            await gateway.client.post("/v1/hints/priority", json=hint)
        # A second gateway replaces the first and does not repeat the priority.
        async with weft(stub) as gateway:
            await gateway.call(headers=NAMED)
        commands = [KvCommand.from_body(request.json) for request in stub.other]
    (command,) = commands
    now = 0.0
    for name, pause_s in ((command.program, 0.0), ("other", 0.0), ("later", 61.0)):
        now += pause_s
        prompt = replica.prompt(name, (Part(name, 40, "user"),))
        replica.add(CallContext(name, name), prompt, 0, 2, now)
        while (ends := replica.start(now)) is not None:
            now = ends
            replica.finish(now)
        if name == command.program:
            replica.scheduler.obey(Command(kv=command))
        known = replica.scheduler._eviction.policy._programs.get(command.program)
        assert known.priority == (0 if name == "later" else 2)


@pytest.mark.parametrize(
    "hint",
    [
        {"session_id": "run"},
        {"session_id": "run", "priority": 9},
        {"session_id": "run", "priority": "high"},
        {"session_id": ""},
        {"priority": 1},
        {"session_id": "\ud800", "priority": 1},
    ],
)
async def test_bad_hints_get_a_clear_error(engine: Any, weft: Any, hint: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        raw = json.dumps(hint).encode()
        got = await gateway.client.post("/v1/hints/priority", content=raw)
        assert got.status_code == 400
        assert got.json()["error"]["code"]


CHUNKS = [
    {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a"'}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
    {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "g", "arguments": "{}"}}]},
    {"content": "and more"},
]
TOOLS = [{"type": "function", "function": {"name": name}} for name in "fg"]


async def call_tools(wire: Any, request: Any) -> None:
    frames = [
        b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": chunk}]}).encode()
        for chunk in CHUNKS
    ]
    await wire.stream(*frames, b"data: [DONE]\n\n")


async def test_tool_calls_are_dispatched_in_the_stream_on_request(engine: Any, weft: Any) -> None:
    async with engine(script=call_tools) as stub, weft(stub) as gateway:
        body = {"stream": True, "tools": TOOLS}
        plain = await gateway.call(body=body, headers=NAMED)
        assert b"tool_call_dispatch" not in plain.content
        streamed = await gateway.call(
            body={**body, "weft": {"tool_dispatch": True}},
            headers={**NAMED, "x-request-id": "a", "x-weft-saved-s": "1"},
        )
        frames = streamed.content.split(b"\n\n")
        events = [n for n, f in enumerate(frames) if f.startswith(b"event: tool_call_dispatch")]
        # Each event follows the chunk that completes the call.
        assert events == [2, 4]
        without = b"\n\n".join(
            f for n, f in enumerate(frames) if n not in events and not f.startswith(b": ")
        )
        assert without == plain.content
        receipt = (await gateway.client.get("/v1/receipts/a")).json()
        assert [tool["name"] for tool in receipt["tools_dispatched"]] == ["f", "g"]
        assert receipt["saved_s"]["dispatch"] >= 0
        unknown = [h for h in receipt["hints"] if "tool_dispatch" in h["hint"]]
        assert unknown == []


async def test_a_listener_receives_the_tool_calls_of_its_program(engine: Any, weft: Any) -> None:
    async with engine(script=call_tools) as stub, weft(stub) as gateway:
        await gateway.client.post("/v1/sessions", json={"id": "run"})
        async with gateway.client.stream("GET", "/v1/sessions/run/events") as events:
            lines = events.aiter_lines()
            assert await anext(lines) == ": listening"
            await gateway.call(
                body={"stream": True, "tools": TOOLS}, headers={**NAMED, "x-request-id": "a"}
            )
            received = []
            async with asyncio.timeout(DEADLINE_S):
                async for line in lines:
                    if line.startswith("data: "):
                        received.append(json.loads(line[6:]))
                    if len(received) == 2:
                        break
        assert [h["tool_call"]["function"]["name"] for h in received] == ["f", "g"]
        assert {h["request_id"] for h in received} == {"a"}
        await asyncio.sleep(0)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_a_listener_receives_the_tool_calls_of_plain_answers(
    path: str, engine: Any, weft: Any
) -> None:
    function = {"name": "f", "arguments": '{"a": 1}'}
    answers: dict[str, Any] = {
        "/v1/chat/completions": {
            "choices": [{"message": {"tool_calls": [{"function": function}]}}]
        },
        "/v1/messages": {"content": [{"type": "tool_use", "name": "f", "input": {"a": 1}}]},
        "/v1/responses": {"output": [{"type": "function_call", **function}]},
    }

    async def script(wire: Any, request: Any) -> None:
        await wire.plain({"id": "resp_1", **answers[path]})

    async with engine(script=script) as stub, weft(stub) as gateway:
        # Without a listener or without tools, no event is sent.
        await gateway.call(path, body={"tools": TOOLS}, headers=NAMED)
        async with gateway.client.stream("GET", "/v1/sessions/run/events") as events:
            lines = events.aiter_lines()
            assert await anext(lines) == ": listening"
            await gateway.call(path, headers=NAMED)
            asked = {**NAMED, "x-request-id": "a"}
            assert (
                await gateway.call(path, body={"tools": TOOLS}, headers=asked)
            ).status_code == 200
            async with asyncio.timeout(DEADLINE_S):
                received = await anext(line async for line in lines if line.startswith("data: "))
        event = json.loads(received[6:])
        assert event["request_id"] == "a"
        assert json.loads(event["tool_call"]["function"]["arguments"]) == {"a": 1}


@pytest.mark.parametrize("final", [False, True])
async def test_engines_receive_a_notice_when_a_program_ends(
    engine: Any, weft: Any, until: Any, final: bool
) -> None:
    async with (
        engine(canned={"/weft/kv": {}}) as stub,
        weft(stub, balancer="locality", locality_threshold_tokens=0) as gateway,
    ):
        headers = {"x-dynamo-session-id": "run"}
        await gateway.call(headers=headers)
        assert stub.other == []
        if final:
            await gateway.call(headers={**headers, "x-dynamo-session-final": "true"})
        else:
            await gateway.client.delete("/v1/sessions/run")
        await until(lambda: [r.json["action"] for r in stub.other] == ["forget"])


async def test_a_short_stream_reports_the_saved_seconds(engine: Any, weft: Any) -> None:
    async with engine(script=call_tools) as stub, weft(stub, receipts=0) as gateway:
        got = await gateway.call(
            body={"stream": True, "tools": TOOLS},
            headers={**NAMED, "x-weft-tool-dispatch": "1", "x-weft-saved-s": "1"},
        )
        frames = got.content.split(b"\n\n")
        (comment,) = [frame for frame in frames if frame.startswith(b": x-weft-saved-s ")]
        assert comment.startswith(b": x-weft-saved-s dispatch=")
        assert frames.index(comment) <= frames.index(b"data: [DONE]")


async def test_prompt_lengths_are_not_learned_from_calls_with_several_answers(
    engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        call = request.json["vllm_xargs"]["weft_call"]
        report = {"call": call, "prompt_tokens": 100 * request.json.get("n", 1), "finished": True}
        await wire.plain({}, headers={"x-weft-report": json.dumps(report)})

    async with engine(script=script) as stub, weft(stub) as gateway:
        turns = MESSAGES[:2]
        await gateway.call(body={"messages": turns, "n": 4}, headers=NAMED)
        await gateway.call(body={"messages": turns}, headers={**NAMED, "x-request-id": "a"})
        await gateway.call(body={"messages": turns}, headers={**NAMED, "x-request-id": "b"})
        receipts = [(await gateway.client.get(f"/v1/receipts/{n}")).json() for n in "ab"]
        assert receipts[0]["predicted"]["prompt_tokens"] != 400
        assert receipts[1]["predicted"]["prompt_tokens"] == 100


async def test_a_program_deleted_during_its_last_call_gets_an_eviction_notice(
    engine: Any, weft: Any, until: Any
) -> None:
    go_on = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        await go_on.wait()
        await wire.plain({})

    async with engine(script=script, canned={"/weft/kv": {}}) as stub, weft(stub) as gateway:
        call = asyncio.create_task(gateway.call(headers=NAMED))
        await until(lambda: stub.requests)
        await gateway.client.delete("/v1/sessions/run")
        assert stub.other == []
        go_on.set()
        assert (await call).status_code == 200
        await until(lambda: [r.json["action"] for r in stub.other] == ["forget"])
