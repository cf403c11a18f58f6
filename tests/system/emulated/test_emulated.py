"""Emulated engines: vLLM's server, scheduler and KV manager, and a worker without a model."""

from __future__ import annotations

import asyncio
import json
import re

import httpx
import pytest
from support.emulated import (
    MODEL,
    complete,
    counters,
    engine_state,
    prompt,
    settled,
    together,
    total,
)
from support.stack import engine_load, until
from support.waiting import RUN_S
from weft_bench.drive.client import Client
from weft_engine.emulated.presets import preset
from weft_engine.wire import ORDER_NAMES

pytestmark = [pytest.mark.system, pytest.mark.engine]

COST = preset("8b-h200").cost
HELLO = [{"role": "user", "content": "Hello"}]
# The first call alone needs more than the KV blocks hold.
SCARCE = {"calls": (6, 2), "words": 120, "tokens": 60}


def chat(url, **body):
    body = {"model": MODEL, "messages": HELLO, **body}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=RUN_S)


def test_a_streamed_call_through_the_gateway(stack):
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 20, "stream": True}
    with httpx.stream(
        "POST", f"{stack.url}/v1/chat/completions", json=body, timeout=RUN_S
    ) as answer:
        frames = [line[6:] for line in answer.iter_lines() if line.startswith("data: {")]
    choices = [json.loads(frame)["choices"][0] for frame in frames]
    assert choices[-1]["finish_reason"] == "length"
    # Tokens that end at about the same time share a frame; on a busy machine, most of them.
    streamed = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert len(streamed.split()) == 20
    # The same prompt has the same answer.
    plain = chat(stack.url, max_tokens=20).json()["choices"][0]["message"]["content"]
    assert plain == streamed


def test_the_service_of_a_program_grows_with_each_call(stack):
    headers = {"x-weft-program": "run-1", "authorization": "Bearer none"}
    service = [0.0]
    for stream in (False, True, False):
        body = {"model": MODEL, "messages": HELLO, "max_tokens": 20, "stream": stream}
        answer = httpx.post(
            f"{stack.url}/v1/chat/completions", json=body, headers=headers, timeout=RUN_S
        )
        assert answer.status_code == 200
        # The API key determines the tenant of the program.
        program = httpx.get(f"{stack.url}/v1/sessions/run-1", headers=headers).json()
        service.append(program["service_s"])
    assert service == sorted(set(service)), "the program's service did not grow with each call"


def test_a_receipt_names_the_program_that_evicted_a_prompt(stack):
    def call(session, name, words):
        headers = {"x-weft-program": session, "x-request-id": name, "authorization": "Bearer none"}
        body = {"model": MODEL, "max_tokens": 2, "messages": [{"role": "user", "content": words}]}
        url = f"{stack.url}/v1/chat/completions"
        assert httpx.post(url, json=body, headers=headers, timeout=RUN_S).status_code == 200
        receipt = httpx.get(f"{stack.url}/v1/receipts/{name}", headers=headers).json()
        prompt, actual = receipt["prompt"], receipt["actual"]
        sources = ("cached", "loaded", "new", "again")
        assert sum(prompt[source] for source in sources) == actual["prompt_tokens"]
        assert prompt["cached"] + prompt["loaded"] == actual["cached_tokens"]
        return prompt

    words = "mine " * 300
    assert call("mine", "why-1", words)["again"] == 0
    assert call("mine", "why-2", words)["cached"] > 200
    for number in range(8):
        call("thief", f"thief-{number}", f"theirs {number} " * 150)
    evicted = call("mine", "why-3", words)["cause"]["evicted"]
    assert evicted["tokens"] > 200
    assert evicted["by"] == "thief"


@pytest.mark.parametrize("engine", ["stack", "swapping", "stock"])
def test_a_lone_call_takes_the_time_of_the_cost_model(engine, request):
    started = request.getfixturevalue(engine)
    url = started.replicas[0] if engine == "stack" else started.url
    before = settled(url)
    # All calls of an engine come from one tenant: the plugin shortens prefills beside another one.
    answer = complete(started.url, f"{engine} " * 40, 30)
    after = counters(url)
    length = answer["usage"]["prompt_tokens"]
    # The engine may run one more step, which it scheduled before it knew that the call was over.
    steps = int(after["steps"] - before["steps"])
    assert steps in (30, 31)
    expected = COST.step(length, 0, 0) + sum(COST.step(0, 1, length + n) for n in range(steps - 1))
    assert after["busy_seconds"] - before["busy_seconds"] == pytest.approx(expected, abs=1e-5)
    assert after["late_seconds"] >= before["late_seconds"]


def test_a_lone_program_takes_the_steps_of_virtual_time(stack):
    """`weft bench fit --agreement` on one program, which no other one can delay."""
    from weft_bench.agreement.compare import Delay
    from weft_bench.agreement.emulated_plays import connected
    from weft_bench.agreement.scenes import Case, branching, scene
    from weft_bench.agreement.virtual_plays import play

    case = Case("lone", 8, 100, branching, 1, 1.0)
    shape = case.shape("8b-h200")
    lone = scene(case, 1)
    assert len(lone.programs[0].calls) == 3

    async def emulated():
        async with Client(stack.url) as client:
            engine = await connected(client, 2.0)
            delay = await engine.delay(shape, chats=False)
            return delay, await engine.play(lone, "plas")

    delay, found = asyncio.run(emulated())
    virtual = play(lone, "plas", shape, 0.0, Delay(0.0), 0)
    assert (found.hit_rate, found.preemptions) == (virtual.hit_rate, virtual.preemptions)
    # Each call may have one more step, which was scheduled before its end was known.
    more = found.steps - sum(call.max_tokens for call in lone.programs[0].calls)
    assert 0 <= more <= 3
    # No call waits in virtual time, so each one takes its steps. Reports are in microseconds, and a
    # step takes less than 6 ms.
    assert found.busy_s == pytest.approx(3 * virtual.call_s, abs=1e-5 + 0.006 * more)
    assert found.program_s > virtual.program_s
    assert delay.call_s > 0


def test_stock_vllm_and_every_order_preempt_and_give_the_same_tokens(stack, stock):
    expected = together(stock.url, **SCARCE)
    assert total(stock.url, "vllm:num_preemptions_total") > 0
    (engine,) = stack.replicas
    for policy in ORDER_NAMES:
        change = {"policy": policy, "reset_cache": True}
        assert httpx.post(f"{stack.url}/weft/policy", json=change).status_code == 200
        before = total(engine, "vllm:num_preemptions_total")
        assert together(stack.url, **SCARCE) == expected, policy
        assert total(engine, "vllm:num_preemptions_total") > before, policy
        assert engine_state(engine)["policy"] == policy


def test_preempted_calls_are_swapped_and_continue(swapping, stock):
    before = counters(swapping.url)["moved_blocks"]
    assert together(swapping.url, **SCARCE) == together(stock.url, **SCARCE)
    swap = engine_state(swapping.url)["swap"]
    assert swap["swapped_out"] > 0
    assert swap["swapped_in"] > 0
    moved = counters(swapping.url)["moved_blocks"] - before
    assert 0 < moved <= swap["swapped_out"] + swap["swapped_in"]


def test_offloaded_blocks_are_loaded_again(stock):
    text = prompt(99, 100)
    first = complete(stock.url, text, 4)
    # Other calls overwrite the blocks.
    together(stock.url, calls=(8,), words=200, tokens=4)
    before = total(stock.url, "vllm:external_prefix_cache_hits_total")
    moved = counters(stock.url)["moved_blocks"]
    assert complete(stock.url, text, 4)["choices"] == first["choices"]
    assert total(stock.url, "vllm:external_prefix_cache_hits_total") > before
    assert counters(stock.url)["moved_blocks"] > moved


@pytest.mark.parametrize("engine", ["stack", "swapping", "stock"])
def test_structured_output_follows_its_grammar(engine, request):
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "size": {"type": "integer"},
            "kind": {"enum": ["town", "village"]},
        },
        "required": ["city", "size", "kind"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    answer = chat(request.getfixturevalue(engine).url, response_format=form, max_tokens=400).json()
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    place = json.loads(choice["message"]["content"])
    assert set(place) == {"city", "size", "kind"}
    assert place["kind"] in ("town", "village")


def test_a_forced_tool_is_called(stack):
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"type": "function", "function": {"name": "count", "parameters": parameters}}
    answer = chat(
        stack.url, tools=[tool], max_tokens=200,
        tool_choice={"type": "function", "function": {"name": "count"}},
    )  # fmt: skip
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert isinstance(json.loads(call["function"]["arguments"])["n"], int)


def test_sampled_calls_work_as_greedy_ones(stack):
    answer = complete(stack.url, "again", 8, temperature=0.7, seed=3, n=2)
    assert [len(choice["text"].split()) for choice in answer["choices"]] == [8, 8]


def test_a_call_without_a_limit_ends(stack):
    answer = chat(stack.url).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 256


@pytest.mark.parametrize("body", [{"logprobs": 0}, {"logprobs": 2}, {"prompt_logprobs": 1}])
def test_logprobs_are_refused(stock, body):
    answer = httpx.post(
        f"{stock.url}/v1/completions", json={"model": MODEL, "prompt": "a", **body}, timeout=RUN_S
    )
    assert answer.status_code == 400
    assert "no model" in answer.json()["error"]["message"]


def test_embeddings_are_refused(stock):
    body = {"model": MODEL, "input": "a"}
    assert httpx.post(f"{stock.url}/v1/embeddings", json=body).status_code == 404


def test_an_aborted_stream_leaves_the_engine(stack):
    body = {"model": MODEL, "prompt": "long", "max_tokens": 1000, "stream": True}
    until(lambda: engine_load(stack) == 0, "the engine is not idle")
    with httpx.stream("POST", f"{stack.url}/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert engine_load(stack) == 1
    until(lambda: engine_load(stack) == 0, "the engine still runs the aborted call")
    complete(stack.url, "after", 3)


def test_engines_say_that_they_are_emulated(stack, swapping, stock):
    names = [m["id"] for m in httpx.get(f"{stack.url}/v1/models").json()["data"]]
    assert names == [MODEL]
    for engine, scheduler in ((swapping, "weft"), (stock, "stock")):
        assert re.search(rf"^EMULATED 8b-h200, .*{scheduler} scheduler", engine.output(), re.M)
    # vLLM without the plugin has none of its endpoints.
    assert httpx.get(f"{stock.url}/weft/state").status_code == 404
