"""Measures an engine over HTTP. The engine's times follow a cost model."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import httpx
import pytest
from support.serving import serving
from weft_bench.costs.fit import fit_costs
from weft_bench.costs.step_probe import (
    DECODES,
    PREFILLS,
    ProbeError,
    measurements,
    probe,
    within,
)
from weft_engine.emulated.cost_model import CostModel
from weft_engine.step_cost import attention_pairs
from weft_engine.wire import REPORT_HEADER, CallReport

MODELS = httpx.Response(200, json={"data": [{"id": "demo"}]})
COST = CostModel(
    step_s=0.004,
    prefill_token_s=0.0002,
    decode_sequence_s=0.001,
    context_token_s=2e-6,
    prefill_pair_s=2e-8,
)
STEP_TOKENS = 2048
BETWEEN_S = 0.001
CALL_S = 0.02


class Engine:
    """Answers Completions. Each call advances its clock by the call's duration."""

    def __init__(self):
        self.now = 0.0
        self.prompts = []

    def __call__(self, request):
        if request.url.path == "/v1/models":
            return MODELS
        body = json.loads(request.content)
        self.prompts += body["prompt"]
        sequences, length = len(body["prompt"]), len(body["prompt"][0])
        steps = []
        for before in range(0, length, STEP_TOKENS):
            tokens = min(STEP_TOKENS, length - before)
            pairs = sequences * attention_pairs(tokens, before)
            steps.append(COST.step(sequences * tokens, 0, before, pairs))
        for made in range(1, body["max_tokens"]):
            steps.append(COST.step(0, sequences, sequences * (length + made)))  # noqa: PERF401
        service = sum(steps)
        self.now += CALL_S + service + len(steps) * BETWEEN_S
        report = CallReport(body["vllm_xargs"]["weft_call"], service_s=service)
        return httpx.Response(200, json={}, headers={REPORT_HEADER: report.to_json()})


def measured(engine, *limits, done=lambda: None, step_tokens=0):
    async def run():
        async with serving(engine) as url:
            return await probe(url, *limits, done, lambda: getattr(engine, "now", 0.0), step_tokens)

    return asyncio.run(run())


@pytest.fixture
def engine():
    return Engine()


def test_costs_of_an_engine_are_found(engine):
    progress = []
    done = lambda: progress.append(1)  # noqa: E731
    probed = measured(engine, 16, 40_000, 2, done=done, step_tokens=STEP_TOKENS)
    cost = fit_costs(probed.steps)
    # The engine's work between two steps is part of each step.
    assert cost.step_s == pytest.approx(COST.step_s + BETWEEN_S, rel=0.02)
    assert cost.prefill_token_s == pytest.approx(COST.prefill_token_s, rel=0.02)
    assert cost.decode_sequence_s == pytest.approx(COST.decode_sequence_s, rel=0.02)
    assert cost.context_token_s == pytest.approx(COST.context_token_s, rel=0.02)
    assert cost.prefill_pair_s == pytest.approx(COST.prefill_pair_s, rel=0.02)
    assert probed.call_s == pytest.approx(CALL_S, rel=0.02)
    assert len(progress) == measurements(16, 40_000, STEP_TOKENS) < len(DECODES) + len(PREFILLS)


def test_no_prompt_is_sent_twice(engine):
    measured(engine, 4, 2048, 2)
    assert all(a != b for a, b in pairwise(sorted(engine.prompts)))


def test_prompts_beyond_the_engines_capacity_are_skipped(engine):
    measured(engine, 2, 300, 1)
    assert max(map(len, engine.prompts)) < 300
    assert measurements(2, 300) < measurements(2, 2000) < measurements(8, 8000)


def test_short_prompts_share_a_step_and_a_long_one_takes_several():
    assert measurements(256, 131_072, 8192) == len(DECODES) + len(PREFILLS)
    for grid in (DECODES, PREFILLS):
        found = list(within(grid, 256, 40_000, 2048))
        assert all(n * length < 2048 for n, length in found if n > 1)
        assert (1, 32_000) in found
        assert (1, 100_000) not in found


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (httpx.Response(200, json={}), "reports no service"),
        (httpx.Response(400, text="too long"), "400: too long"),
    ],
)
def test_unusable_answers_are_refused(answer, why):
    def engine(request):
        return MODELS if request.url.path == "/v1/models" else answer

    with pytest.raises(ProbeError, match=why):
        measured(engine, 4, 2048, 1)


def test_missing_server_is_an_error():
    with pytest.raises(ProbeError, match="serves no model"):
        asyncio.run(probe("http://127.0.0.1:9", 4, 2048, 1, lambda: None))
