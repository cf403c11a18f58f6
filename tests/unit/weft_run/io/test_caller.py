"""Calls over HTTP: bodies, identity, repetitions and errors."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from support.scripted_server import Asked, scripted
from support.waiting import DEADLINE_S
from weft_bench.stack.processes import free_port
from weft_gateway.policies.costs import EngineCosts, StepCosts
from weft_run.io.caller import HttpCaller, Server, encoded, read_answer
from weft_run.io.errors import CallFailed, JobError
from weft_run.language.requests import LlmRequest
from weft_run.plan.commands import ANY, Usage, Work

pytestmark = pytest.mark.anyio

REQUEST = LlmRequest((("system", "s"), ("user", "u")), "m", {"temperature": 0})


def work(row: int, window: str = ANY, attempts: int = 1) -> Work:
    return Work(1, row, "a", "a", False, attempts, True, REQUEST, window)


ANSWER = {
    "choices": [{"message": {"role": "assistant", "content": "hi"}}],
    "usage": {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 4},
    },
}
COSTS = {
    "step_s": 0.001, "weights_s": 0.01, "prefill_token_s": 1e-4, "decode_sequence_s": 2e-4,
    "context_token_s": 1e-7, "kv_tokens": 16000,
}  # fmt: skip


async def call(script: Any, attempts: int = 3) -> Any:
    with scripted(script) as server:
        caller = HttpCaller(f"{server.url}/v1", "run-1", api_key="key")
        try:
            return await caller.call(work(7, attempts=attempts), lambda: None), server.asked
        finally:
            await caller.aclose()


async def test_all_calls_are_of_one_program_and_each_row_is_a_thread() -> None:
    answer, asked = await call(lambda _: (200, ANSWER))
    assert answer.text == "hi"
    assert answer.usage == Usage(9, 4, 2)
    first, last = asked
    assert first.path == "/v1/chat/completions"
    assert first.headers["x-weft-program"] == "run-1"
    assert first.headers["x-weft-thread"] == "row-7"
    # Beside other clients, the gateway holds calls that can wait.
    assert first.headers["x-weft-batch"] == "1"
    assert first.headers["authorization"] == "Bearer key"
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert first.json == {"model": "m", "temperature": 0, "messages": messages}
    assert (last.method, last.path) == ("DELETE", "/v1/sessions/run-1")


def failing(status: int, times: int) -> Any:
    """Fail some times, then answer."""
    left = [times]

    def script(asked: Asked) -> tuple[int, Any]:
        left[0] -= asked.method == "POST"
        return (status, {"error": {"message": "no"}}) if left[0] >= 0 else (200, ANSWER)

    return script


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_run.io.caller.pause", lambda *_: 0.0)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_errors_that_may_pass_are_repeated(status: int) -> None:
    answer, asked = await call(failing(status, 2))
    assert answer.text == "hi"
    assert len([one for one in asked if one.method == "POST"]) == 3


@pytest.mark.parametrize("status", [429, 503])
async def test_refusals_are_reported_and_are_no_attempts(status: int) -> None:
    refused: list[int] = []
    with scripted(failing(status, 5)) as server:
        caller = HttpCaller(server.url, "run-1")
        answer = await caller.call(work(0, attempts=1), lambda: refused.append(1))
        await caller.aclose()
    assert (answer.text, len(refused)) == ("hi", 5)


async def test_repetitions_end() -> None:
    with pytest.raises(CallFailed) as error:
        await call(failing(502, 9))
    failure = error.value.failure
    assert (failure.code, failure.attempts) == ("http_502", 3)


async def test_an_error_of_the_request_is_not_repeated() -> None:
    with pytest.raises(CallFailed) as error:
        await call(failing(400, 1))
    failure = error.value.failure
    assert failure == ("http_400", "no", 1)


async def test_a_call_waits_for_a_model_that_is_away() -> None:
    gone = (404, {"error": {"message": "The model `m` does not exist.", "code": 404}})
    answers = [gone, gone, (200, ANSWER), gone]

    def script(asked: Asked) -> tuple[int, Any]:
        return answers.pop(0) if asked.method == "POST" else (200, {"data": [{"id": "m"}]})

    with scripted(script) as server:
        caller = HttpCaller(server.url, "run-1")
        await caller.check_models({"m": "w.yaml:3"})
        assert (await caller.call(work(0, attempts=1), lambda: None)).text == "hi"
        await caller.aclose()
        # A server that lists no models may not have it at all.
        caller = HttpCaller(server.url, "run-1")
        with pytest.raises(CallFailed, match="does not exist"):
            await caller.call(work(0, attempts=1), lambda: None)
        await caller.aclose()


async def test_a_clock_that_is_set_does_not_end_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1e9]
    monkeypatch.setattr("weft_run.io.caller.time", lambda: now_s[0])

    def script(asked: Asked) -> tuple[int, Any]:
        now_s[0] += 3600
        return failed(asked)

    failed = failing(429, 3)
    answer, _ = await call(script, attempts=1)
    assert answer.text == "hi"


async def test_an_answer_without_a_completion_is_repeated() -> None:
    answers: list[tuple[int, Any]] = [(200, "<html>"), (200, {"choices": []})]
    answer, _ = await call(lambda _: answers.pop(0) if answers else (200, ANSWER))
    assert answer.text == "hi"


async def test_a_key_that_is_refused_ends_the_run() -> None:
    with pytest.raises(JobError, match=r"refuses the key in OPENAI_API_KEY: no"):
        await call(failing(401, 1))


@pytest.mark.parametrize("key", ["sk-a\n", "sk a", " ", "\x7f"])
async def test_a_key_with_a_space_is_an_error_that_does_not_show_it(key: str) -> None:
    caller = HttpCaller("http://127.0.0.1:9", "run-1", api_key=key)
    with pytest.raises(JobError, match=r"^OPENAI_API_KEY contains a space or a line break"):
        await caller.servers()
    await caller.aclose()


async def test_a_call_waits_for_a_server_that_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server begins after some refused connections."""
    port, tries = free_port(), 0
    made = asyncio.Event()

    def count() -> None:
        nonlocal tries
        tries += 1
        if tries == 5:
            made.set()

    monkeypatch.setattr("weft_run.io.caller.pause", lambda *_: 0.01)
    caller = HttpCaller(f"http://127.0.0.1:{port}", "run-1")
    waiting = asyncio.create_task(caller.call(work(0, attempts=1), count))
    async with asyncio.timeout(DEADLINE_S):
        await made.wait()
        with scripted(lambda _: (200, ANSWER), port=port):
            assert (await waiting).text == "hi"
            await caller.aclose()
    assert [one.message for one in caplog.records].count(caplog.records[0].message) == 1
    assert "takes no calls now, and the run waits" in caplog.text


async def test_a_server_that_stays_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_run.io.caller._REFUSED_FOR_S", 0.0)
    caller = HttpCaller("http://127.0.0.1:9", "run-1")
    with pytest.raises(CallFailed) as error:
        await caller.call(work(0, attempts=2), lambda: None)
    assert (error.value.failure.code, error.value.failure.attempts) == ("connection", 2)
    with pytest.raises(JobError, match=r"http://127.0.0.1:9 cannot be used"):
        await caller.only_model("w.yaml:3")
    await caller.aclose()


async def test_the_only_model_is_the_default() -> None:
    names = ["m"]

    def script(asked: Asked) -> tuple[int, Any]:
        return 200, {"data": [{"id": name} for name in names]}

    with scripted(script) as server:
        caller = HttpCaller(server.url, "run-1")
        assert await caller.only_model("w.yaml:3") == "m"
        names.append("n")
        with pytest.raises(JobError, match=r"^w.yaml:3: .*serves: m, n"):
            await caller.only_model("w.yaml:3")
        with pytest.raises(JobError, match=r"^w.yaml:3: .*'mn'; did you mean n\?"):
            await caller.check_models({"m": "w.yaml:2", "mn": "w.yaml:3"})
        assert await caller.servers() == [Server("run-1")]
        await caller.aclose()


async def test_a_refused_key_is_named() -> None:
    error = {"error": {"message": "unknown key", "code": "invalid_api_key"}}
    with scripted(lambda _: (401, error)) as server:
        caller = HttpCaller(server.url, "run-1", api_key="wrong")
        for ask in (partial(caller.only_model, "w.yaml:3"), caller.servers):
            with pytest.raises(JobError, match="refuses the key in OPENAI_API_KEY: unknown key"):
                await ask()
        await caller.aclose()


@pytest.mark.parametrize(
    "gateway", ["http://127.0.0.1:99999", "http://[::1", "http://127.0.0.1:1\n", "http://\udc80"]
)
async def test_an_address_that_cannot_be_used_is_an_error(gateway: str) -> None:
    caller = HttpCaller(gateway, "run-1", api_key="ключ")
    with pytest.raises(JobError, match=r"cannot be used: [^(]*$"):
        await caller.only_model("w.yaml:3")
    await caller.aclose()


async def test_a_path_without_models_is_an_error() -> None:
    with scripted(lambda _: (404, {"detail": "Not Found"})) as server:
        caller = HttpCaller(server.url, "run-1")
        with pytest.raises(JobError, match="has no /v1/models"):
            await caller.check_models({"m": "w.yaml:2"})
        await caller.aclose()


async def test_each_replica_has_a_program_whose_calls_ask_for_it() -> None:
    replicas = [
        {"name": "a", "healthy": True, "slots": 16, "models": ["m"], "costs": COSTS},
        {"name": "b", "healthy": True, "slots": 0, "models": []},
        {"name": "c", "healthy": False},
        {"name": "d", "healthy": True, "draining": True},
    ]

    def script(asked: Asked) -> tuple[int, Any]:
        return 200, {"replicas": replicas} if asked.path == "/health" else ANSWER

    with scripted(script) as server:
        caller = HttpCaller(server.url, "run-1")
        found = await caller.servers()
        costs = EngineCosts(StepCosts(0.001, 0.01, 1e-4, 2e-4, 1e-7, together=16), 16000)
        known = Server("run-1", "a", 16, frozenset("m"), costs)
        assert found == [known, Server("run-1-2", "b")]
        for row, program in enumerate([*(one.program for one in found), ANY]):
            await caller.call(work(row, program), lambda: None)
        await caller.aclose()
    posts = [
        (one.headers["x-weft-program"], one.headers.get("x-weft-replica"))
        for one in server.asked if one.method == "POST"
    ]  # fmt: skip
    assert posts == [("run-1", "a"), ("run-1-2", "b"), ("run-1", None)]
    ended = [one.path for one in server.asked if one.method == "DELETE"]
    assert ended == ["/v1/sessions/run-1", "/v1/sessions/run-1-2"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices": [{"message": 3}]}'])
def test_an_answer_that_is_no_completion_is_an_error(body: bytes) -> None:
    with pytest.raises(CallFailed, match="not a chat completion"):
        read_answer(body)


def test_an_answer_without_text_is_an_error() -> None:
    body = b"""{"choices": [{"message": {"content": null, "tool_calls": []}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2000}}"""
    with pytest.raises(CallFailed, match="no text") as error:
        read_answer(body)
    assert error.value.usage.total == 2009


@pytest.mark.parametrize("count", [-1, 2**70, "x", [1]])
def test_an_answer_with_an_impossible_usage_is_an_error(count: Any) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": count}
    body = json.dumps({"choices": [{"message": {"content": "hi"}}], "usage": usage}).encode()
    with pytest.raises(CallFailed, match="not a chat completion"):
        read_answer(body)


def test_a_request_that_is_not_json_is_an_error() -> None:
    for request in (
        LlmRequest((("user", "u"),), "m", {"max_tokens": 2**80}),
        LlmRequest((("user", "\ud800"),), "m"),
    ):
        with pytest.raises(CallFailed) as error:
            encoded(request)
        assert error.value.failure.code == "not_json"
