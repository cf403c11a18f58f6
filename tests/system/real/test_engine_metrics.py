"""The `weft_engine` series on the `/metrics` page of a real engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.stack import Stack, until
from support.waiting import RUN_S

pytestmark = [pytest.mark.system, pytest.mark.engine]

FAMILIES = {
    "weft_engine_running": "gauge",
    "weft_engine_waiting": "gauge",
    "weft_engine_displacements": "counter",
    "weft_engine_recomputed_tokens": "counter",
    "weft_engine_promotions": "counter",
    "weft_engine_demotions": "counter",
    "weft_engine_policy": "gauge",
    "weft_engine_kv_usage_ratio": "gauge",
    "weft_engine_deferred": "gauge",
    "weft_engine_kv_blocks": "gauge",
    "weft_engine_part": "gauge",
}


def page(engine: str) -> dict[str, object]:
    """Return the engine's metric families by name."""
    answer = httpx.get(f"{engine}/metrics")
    assert answer.status_code == 200
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def value(engine: str, name: str, **labels: str) -> float:
    """Return the value of one sample, or 0 if it is missing."""
    wanted = {"engine": "0", **labels}
    samples = [s for family in page(engine).values() for s in family.samples]
    return sum(s.value for s in samples if s.name == name and s.labels == wanted)


def ask(engine: str, tokens: int) -> None:
    """Make a call directly to the engine, as a new program."""
    call = f"call-{uuid4()}"
    answer = httpx.post(
        f"{engine}/v1/chat/completions",
        headers={"x-weft-call": call},
        json={
            "model": "weft-demo",
            "messages": [{"role": "user", "content": "Tell me a long story."}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "vllm_xargs": {"weft_call": call, "weft_program": call, "weft_tags": [16, 3]},
        },
        timeout=RUN_S,
    )
    assert answer.status_code == 200


def test_weft_series_are_exported_next_to_those_of_vllm(stack):
    engine = stack.replicas[0]
    # A switch of the order by another test takes effect before the next step.
    ask(engine, 1)
    until(
        lambda: value(engine, "weft_engine_policy", policy="resident") == 1,
        "the engine has not reported its order",
    )
    found = page(engine)
    assert {name: found[name].type for name in FAMILIES if name in found} == FAMILIES
    assert any(name.startswith("vllm:") for name in found)


@pytest.fixture
def plas(stack: Stack) -> Iterator[None]:
    """Set an order that demotes calls, and restore the default."""
    for policy in ("plas", "resident"):
        answer = httpx.post(f"{stack.url}/weft/policy", json={"policy": policy}, timeout=RUN_S)
        assert answer.status_code == 200
        if policy == "plas":
            yield


def test_weft_series_follow_the_running_calls(stack, plas):
    engine = stack.replicas[0]
    before = value(engine, "weft_engine_demotions_total")
    # The calls run for longer than the quantum of the first queue.
    calls = [threading.Thread(target=ask, args=(engine, 1500)) for _ in range(2)]
    for call in calls:
        call.start()
    until(lambda: value(engine, "weft_engine_running") >= 1, "no call is running")
    for call in calls:
        call.join()
    until(lambda: value(engine, "weft_engine_running") == 0, "a call is still running")
    until(lambda: value(engine, "weft_engine_demotions_total") > before, "no call was demoted")
    until(
        lambda: value(engine, "weft_engine_kv_blocks", tag="USER_QUERY") > 0,
        "no block has a tag",
    )
