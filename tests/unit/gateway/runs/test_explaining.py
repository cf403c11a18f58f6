"""Explanations of files, with the costs that engines report."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.serving import serving
from weft.examples import workflows
from weft_gateway.runs.errors import JobError
from weft_gateway.runs.explaining import explained, replicas_of
from weft_gateway.workflows.spec import load

COSTS = {
    "step_s": 0.001, "weights_s": 0.01, "prefill_token_s": 1e-4, "decode_sequence_s": 2e-4,
    "context_token_s": 1e-7,
}  # fmt: skip
STATE: dict[str, Any] = {"slots": 8, "kv_blocks": 1000, "block_tokens": 16, "costs": COSTS}


def replicas(state: Any) -> list[Any]:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/weft/state"
        return httpx.Response(200, json=state)

    async def ask() -> list[Any]:
        async with serving(answer) as url:
            return await asyncio.to_thread(replicas_of, [f"{url}/v1"])

    return asyncio.run(ask())


def test_seconds_follow_the_costs_that_engines_report(tmp_path: Path) -> None:
    found = replicas({"engines": [STATE]})
    assert [(one.kv_tokens, one.slots) for one in found] == [(16000, 8)]
    slow = replicas({"engines": [STATE | {"costs": COSTS | {"weights_s": 0.1}}]})
    workflows.copy(tmp_path)
    workflow = load((tmp_path / "map_reduce.yaml").read_text())
    rows = tmp_path / "map_reduce.jsonl"
    seconds = [
        sum(explained(workflow, rows, replicas=one).seconds.values()) for one in (found, slow)
    ]
    assert 0 < seconds[0] < seconds[1]
    both = explained(workflow, rows, replicas=found * 2)
    assert both.least_s == seconds[0] / 2
    one = explained(workflow, rows, sample=1)
    assert (one.rows, one.sample) == (3, 1)


@pytest.mark.parametrize("state", [{}, {"engines": []}, [], {"engines": [STATE | {"costs": None}]}])
def test_an_engine_without_costs_is_an_error(state: Any) -> None:
    with pytest.raises(JobError, match="no costs"):
        replicas(state)


def test_an_engine_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(JobError, match="no costs"):
        replicas_of(["http://127.0.0.1:9"])
