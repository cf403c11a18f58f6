"""The agent's loop: overlap, messages to the model, and behaviour without hints."""

import asyncio
import json
import threading

import openai
import pytest
from support.scripted_server import (
    CALLED,
    DONE,
    answer_frames,
    call_frames,
    frame,
    scripted,
)
from support.waiting import DEADLINE_S
from weft_programs import Session, Tool, agent

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def raised_time_limit(monkeypatch):
    """Raise the time limit, so that a slow machine does not look like a server that hangs."""
    monkeypatch.setattr(agent, "GRACE_S", DEADLINE_S)


ASK = [{"role": "user", "content": "Compare."}]
HANDLE = 201, {"id": "pf_1", "object": "weft.prefill", "status": "running", "expires_at": 9}


def calls(*names, arguments="{}"):
    frames = [f for i, name in enumerate(names) for f in call_frames(i, name, arguments)]
    return [*frames, CALLED, DONE]


class Model:
    """A server with given chat answers. It answers hints with a given status (404: no hints)."""

    def __init__(self, *answers, prefill=(404, {}), extend=None):
        self.answers = list(answers)
        self.prefill = prefill
        self.extend = extend

    def __call__(self, asked):
        if asked.path.endswith("/sessions"):
            return 201, {"id": "p"}
        if asked.path.endswith("/prefill"):
            return self.prefill
        if asked.path.endswith("/extend") and self.extend is not None:
            return self.extend
        if asked.method == "DELETE":
            return 200, {}
        answer = self.answers.pop(0)
        return answer() if callable(answer) else answer


async def run(server, tools, **options):
    async with asyncio.timeout(DEADLINE_S), Session(server.url) as s:
        return await s.run_tools(model="tiny", messages=ASK, tools=tools, **options)


def _when_called(then):
    """Return a chunk callback that calls `then` when an answer ends with tool calls."""
    return lambda chunk: then() if chunk.choices[0].finish_reason == "tool_calls" else None


def plain_calls(server):
    return [asked.json for asked in server.to("POST", "/chat/completions")]


async def test_tool_starts_while_the_model_generates_the_next_call():
    started = threading.Event()

    def answer():
        yield from call_frames(0, "first", "{}")
        assert started.wait(DEADLINE_S), "the tool was not started before the answer's end"
        yield from call_frames(1, "second", "{}")
        yield from (CALLED, DONE)

    def first():
        started.set()
        return "one"

    with scripted(Model(answer, answer_frames("Done."))) as server:
        ran = await run(server, [Tool("first", first), Tool("second", lambda: "two")])
    assert (ran.answer, ran.finished, ran.turns) == ("Done.", True, 2)
    assert [tool.output for tool in ran.tool_runs] == ["one", "two"]
    assert ran.tool_runs[0].head_start_s > ran.tool_runs[1].head_start_s >= 0


async def test_tools_run_concurrently():
    both = threading.Barrier(2, timeout=DEADLINE_S)
    tools = [Tool(name, both.wait) for name in "ab"]
    with scripted(Model(calls("a", "b"), answer_frames("Done."))) as server:
        ran = await run(server, tools)
    assert not any(tool.failed for tool in ran.tool_runs)


async def test_conversation_has_the_apis_format():
    with scripted(Model(calls("f", arguments='{"a": 1}'), answer_frames("Done."))) as server:
        ran = await run(server, [Tool("f", lambda a: {"got": a})])
        first, second = plain_calls(server)
    function = {"name": "f", "arguments": '{"a": 1}'}
    call = {"id": "call-0", "type": "function", "function": function}
    asked = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call-0", "content": '{"got": 1}'},
    ]
    assert (first["messages"], second["messages"]) == (ASK, asked)
    assert ran.messages == [*asked, {"role": "assistant", "content": "Done."}]
    assert {asked.headers["x-weft-program"] for asked in server.to("POST", "completions")} == {"p"}


async def test_next_prompt_is_prefilled_during_tools_and_then_extended():
    model = Model(calls("f"), prefill=HANDLE, extend=answer_frames("Done."))
    with scripted(model) as server:
        # The tool ends only after the prefill request.
        tool = Tool("f", lambda: server.wait_for("POST", "/hints/prefill") or "ok")
        ran = await run(server, [tool])
        [announced] = server.to("POST", "/hints/prefill")
        [whole] = server.to("POST", "/hints/prefill/pf_1/extend")
    prefix = announced.json["messages"]
    assert whole.json["messages"][: len(prefix)] == prefix
    assert whole.json["messages"][len(prefix) :] == [
        {"role": "tool", "tool_call_id": "call-0", "content": "ok"}
    ]
    assert announced.json["tools"] == whole.json["tools"]
    assert whole.json["stream"] is True
    assert (ran.answer, ran.extended, len(plain_calls(server))) == ("Done.", 1, 1)
    assert server.to("DELETE", "pf_1") == []


async def test_client_options_apply_to_extensions_and_plain_calls():
    with scripted(Model(calls("f"), prefill=HANDLE, extend=answer_frames("Done."))) as server:
        tool = Tool("f", lambda: server.wait_for("POST", "/hints/prefill") or "ok")
        await run(
            server, [tool], extra_headers={"x-own": "1"}, timeout=30, temperature=0,
            extra_body={"chat_template_kwargs": {"thinking": False}, "top_k": 1},
        )  # fmt: skip
        [plain] = server.to("POST", "/chat/completions")
        [announced] = server.to("POST", "/hints/prefill")
        [extended] = server.to("POST", "/extend")
    assert extended.json.keys() == plain.json.keys()
    assert extended.json["top_k"] == 1
    assert extended.headers["x-own"] == plain.headers["x-own"] == "1"
    assert announced.json["chat_template_kwargs"] == {"thinking": False}


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_server_without_hints_is_asked_once_and_gives_the_same_result(status):
    with scripted(
        Model(calls("f"), calls("f"), answer_frames("Done."), prefill=(status, {}))
    ) as server:
        ran = await run(
            server, [Tool("f", lambda: server.wait_for("POST", "/hints/prefill") or "ok")]
        )
        assert len(server.to("POST", "/hints/prefill")) == 1
    assert (ran.answer, ran.turns, ran.extended) == ("Done.", 3, 0)


async def test_prefill_can_be_turned_off():
    with scripted(Model(calls("f"), answer_frames("Done."), prefill=HANDLE)) as server:

        async def ends_after_the_answer():
            await answered.wait()
            await asyncio.sleep(0)

        answered = asyncio.Event()
        tool = Tool("f", ends_after_the_answer)
        await run(server, [tool], prefill=False, on_chunk=_when_called(answered.set))
        assert server.to("POST", "/hints/prefill") == []


@pytest.mark.parametrize("status", [404, 409, 503])
async def test_refused_extension_becomes_a_plain_call(status):
    model = Model(
        calls("f"), answer_frames("Done."), prefill=HANDLE, extend=(status, {"error": {}})
    )
    with scripted(model) as server:
        tool = Tool("f", lambda: server.wait_for("POST", "/hints/prefill") or "ok")
        ran = await run(server, [tool])
        assert server.to("POST", "/hints/prefill/pf_1/extend")
    assert (ran.answer, ran.extended) == ("Done.", 0)


@pytest.mark.parametrize("answer", [(500, {}), (201, []), (201, {"id": 1})])
async def test_invalid_hint_answers_are_ignored(answer):
    with scripted(Model(calls("f"), answer_frames("Done."), prefill=answer)) as server:
        tool = Tool("f", lambda: server.wait_for("POST", "/hints/prefill") or "ok")
        assert (await run(server, [tool])).answer == "Done."


async def test_cancellation_discards_the_prefill_and_stops_the_tools():
    stopped = asyncio.Event()
    with scripted(Model(calls("f"), prefill=HANDLE)) as server:

        async def tool():
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        work = asyncio.create_task(run(server, [Tool("f", tool)]))
        await asyncio.to_thread(server.wait_for, "POST", "/hints/prefill")
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert stopped.is_set()
        server.wait_for("DELETE", "/hints/prefill/pf_1")
        server.wait_for("DELETE", "/sessions/p")


async def test_tool_errors_are_reported_to_the_model():
    def fails():
        raise OSError("no network")

    frames = [*calls("fails", "unknown", "f")[:-2]]
    frames += [*call_frames(3, "f", '{"a": }'), CALLED, DONE]
    with scripted(Model(frames, answer_frames("Done."))) as server:
        ran = await run(server, [Tool("fails", fails), Tool("f", lambda: "ok")])
        outputs = {m["tool_call_id"]: m["content"] for m in ran.messages if m["role"] == "tool"}
    assert "no network" in json.loads(outputs["call-0"])["error"]
    assert "unknown" in json.loads(outputs["call-1"])["error"]
    assert outputs["call-2"] == "ok"
    assert "JSON" in json.loads(outputs["call-3"])["error"]
    assert [tool.failed for tool in ran.tool_runs] == [True, True, False, True]
    assert ran.messages[1]["tool_calls"][3]["function"]["arguments"] == "{}"


async def test_turns_are_bounded_and_the_last_has_no_tools():
    with scripted(Model(*[calls("f")] * 3)) as server:
        ran = await run(
            server, [Tool("f", lambda: "ok")], max_turns=3, tool_choice="required", temperature=0
        )
        bodies = plain_calls(server)
    assert [body["tool_choice"] for body in bodies] == ["required", "auto", "none"]
    assert {body["temperature"] for body in bodies} == {0}
    assert (ran.turns, ran.finished) == (3, False)


async def test_truncated_answer_is_not_finished():
    frames = [frame({"content": "I wou"}), frame({}, "length"), DONE]
    with scripted(Model(frames)) as server:
        ran = await run(server, [])
        assert "tools" not in plain_calls(server)[0]
    assert (ran.answer, ran.finished) == ("I wou", False)


async def test_broken_stream_is_an_error_and_stops_the_tools():
    stopped = asyncio.Event()
    running = threading.Event()

    def answer():
        yield from call_frames(0, "f", "{}")
        assert running.wait(DEADLINE_S)
        raise EOFError

    async def tool():
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    broken = pytest.raises(openai.APIConnectionError)
    with scripted(Model(answer)) as server, broken:
        await run(server, [Tool("f", tool)])
    assert stopped.is_set()


async def test_callbacks_see_calls_and_chunks():
    seen = []
    with scripted(Model(calls("f"), answer_frames("Done."))) as server:
        await run(
            server,
            [Tool("f", lambda: "ok")],
            on_call=lambda call: seen.append(call.name),
            on_chunk=lambda chunk: seen.append(chunk.choices[0].finish_reason),
        )
    assert seen == [None, None, None, "f", "tool_calls", None, "stop"]


async def test_given_client_is_used_and_not_closed():
    with scripted(Model(answer_frames("Done."))) as server:
        async with Session(server.url) as s, s.async_openai(max_retries=0) as client:
            ran = await s.run_tools(model="tiny", messages=ASK, tools=[], client=client)
            assert not client.is_closed()
    assert ran.answer == "Done."


@pytest.mark.parametrize("options", [{"max_turns": 0}, {"n": 2}, {"stream": False}])
async def test_invalid_options_are_refused(options):
    with scripted(Model()) as server, pytest.raises(ValueError, match=r"max_turns|itself"):
        await run(server, [], **options)
