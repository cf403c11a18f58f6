"""Answers that run beside a long prompt, on vLLM's real scheduler and cache."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from harness import make_engine
from vllm.lora.request import LoRARequest

pytestmark = pytest.mark.engine

ANSWERS, STEP_TOKENS, PROMPT = 8, 256, 1900
STEP_S, TOKEN_S = 0.012, 0.001


def beside(engine: Any, policy: str) -> tuple[Any, list[int]]:
    """Play a prompt of the oldest program beside answers. Returns the engine and the prompt tokens
    of each step until its first token."""
    e = engine(policy=policy, max_num_seqs=16, blocks=400, step_tokens=STEP_TOKENS)
    e.step_s, e.token_s = STEP_S, TOKEN_S
    for number in range(ANSWERS):
        name = f"a{number}"
        prompt = [number * 100 + n for n in range(40)]
        e.add(name, program=name, arrival=1.0 + number, service=1.0, prompt=prompt, tokens=400)
    while len(e.tokens) < ANSWERS:
        e.step()
    for _ in range(4):
        e.step()
    prompt = [9000 + n for n in range(PROMPT)]
    e.add("old", program="old", arrival=0.5, service=0.5, prompt=prompt, tokens=2)
    computed = [0]
    while computed[-1] < PROMPT:
        e.step()
        computed.append(min(PROMPT, int(e.scheduler.requests["old"].num_computed_tokens)))
        assert {f"a{number}" for number in range(ANSWERS)} <= e.batches[-1]
    return e, [after - before for before, after in pairwise(computed)]


@pytest.mark.parametrize("policy", ["program_fifo", "resident", "slack", "mlfq"])
def test_an_older_prompt_leaves_each_answer_its_token_and_lasts_a_bounded_time(engine, policy):
    e, computed = beside(engine, policy)
    # The first of them may come before the costs are known.
    assert max(computed[2:]) * TOKEN_S <= 1.2 * (STEP_S + ANSWERS * TOKEN_S) / 0.15
    assert len(computed) < 2 * PROMPT / STEP_TOKENS + 8
    e.run()
    assert {name: len(tokens) for name, tokens in e.tokens.items()} == {
        "old": 2, **{f"a{number}": 400 for number in range(ANSWERS)}
    }  # fmt: skip


def test_under_fcfs_a_step_is_that_of_vllm(engine):
    e, computed = beside(engine, "fcfs")
    assert computed[1] == STEP_TOKENS - ANSWERS
    e.run()


def test_a_prompt_that_runs_alone_takes_whole_steps(engine):
    e = engine(policy="resident", step_tokens=STEP_TOKENS)
    e.step_s, e.token_s = STEP_S, TOKEN_S
    e.add("first", program="p", prompt=list(range(40)), tokens=40)
    e.run()
    e.add("long", program="p", service=1.0, prompt=[7000 + n for n in range(PROMPT)], tokens=2)
    e.scheduler._short.ran(60.0)
    e.step()
    assert e.scheduler.requests["long"].num_computed_tokens == STEP_TOKENS
    e.run()


def test_a_prompt_that_waits_for_its_next_part_keeps_its_adapter(engine):
    """vLLM can hold one adapter and counts those of scheduled requests. Calls of another tenant,
    whose prompt is cached, need another adapter while steps leave out the long prompt."""
    e = engine(policy="resident", max_num_seqs=16, blocks=400, step_tokens=STEP_TOKENS)
    e.step_s, e.token_s = STEP_S, TOKEN_S
    e.scheduler.lora_config = SimpleNamespace(max_loras=1)

    def add(name: str, tenant: str, adapter: int, prompt: list[int]) -> None:
        e.add(name, tenant=tenant, prompt=prompt, tokens=2)
        lora = LoRARequest(f"adapter{adapter}", adapter, "/adapter")
        e.scheduler.requests[name].lora_request = lora

    add("warm", "b", 2, list(range(17)))
    e.run()
    e.add("answer", tenant="b", tokens=200)
    add("long", "a", 1, list(range(1000, 2900)))
    for number in range(60):
        e.step()
        add(f"short{number}", "b", 2, list(range(17)))
    e.run()
    assert len(e.tokens["long"]) == 2


def test_prompts_stay_whole_if_the_model_needs_them_at_once(tmp_path):
    def whole(config: Any) -> None:
        config.scheduler_config.enable_chunked_prefill = False

    e = make_engine(tmp_path, policy="resident", max_num_seqs=8, step_tokens=2048, change=whole)
    e.step_s, e.token_s = STEP_S, TOKEN_S
    e.add("answer", program="answer", tokens=30)
    for number in range(5):
        e.step()
        name = f"p{number}"
        prompt = [1000 * number + n for n in range(1500)]
        e.add(name, program=name, tenant=name, prompt=prompt, tokens=2)
        while not e.scheduler.requests[name].num_computed_tokens:
            e.step()
        assert e.scheduler.requests[name].num_computed_tokens >= 1500
    e.run()
