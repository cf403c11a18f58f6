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
    "context_token_s": 1e-7, "kv_tokens": 16000,
}  # fmt: skip
REPLICA = {"name": "a", "healthy": True, "models": ["m"], "slots": 8, "costs": COSTS}


def replicas(*found: Any) -> list[Any]:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/health"
        return httpx.Response(200, json={"replicas": found})

    async def ask() -> list[Any]:
        async with serving(answer) as url:
            return await asyncio.to_thread(replicas_of, f"{url}/v1")

    return asyncio.run(ask())


def test_seconds_follow_the_costs_that_engines_report(tmp_path: Path) -> None:
    found = replicas(REPLICA)
    assert [(one.kv_tokens, one.slots, one.models) for one in found] == [(16000, 8, {"m"})]
    slow = replicas(REPLICA | {"costs": COSTS | {"weights_s": 0.1}})
    workflows.copy(tmp_path)
    workflow = load((tmp_path / "map_reduce.yaml").read_text())
    rows = tmp_path / "map_reduce.jsonl"
    seconds = [
        sum(explained(workflow, rows, replicas=one).seconds.values()) for one in (found, slow)
    ]
    assert 0 < seconds[0] < seconds[1]
    both = explained(workflow, rows, replicas=found * 2)
    assert both.busy_s == pytest.approx(seconds[0] / 2)
    one = explained(workflow, rows, sample=1)
    assert (one.rows, one.sample) == (3, 1)


@pytest.mark.parametrize(
    "replica", [{}, 7, REPLICA | {"costs": None}, REPLICA | {"healthy": False}]
)
def test_a_replica_without_costs_does_not_count(replica: Any) -> None:
    assert [one.name for one in replicas(replica, REPLICA)] == ["a"]


def test_a_gateway_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(JobError, match="cannot be used"):
        replicas_of("http://127.0.0.1:9")
