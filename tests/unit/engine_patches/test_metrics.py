"""The engine's state as Prometheus series."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from weft_engine.metrics import EngineMetrics

STATE = {
    "policy": "plas",
    "running": 3,
    "waiting": 5,
    "waiting_by_queue": {"0": 1, "2": 4},
    "displacements": 2,
    "recomputed_tokens": 40,
    "promotions": 1,
    "demotions": 7,
    "kv_usage": 0.5,
    "held_back": 2,
    "swap": {"slots": 8, "used": 1},
    "kv": {"blocks_by_tag": {"RESPONSE": 6}, "pins": 1},
}


class Page:
    """The series of `/metrics` after some states."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = EngineMetrics(self.registry)

    def take(self, engine: int = 0, **changes: Any) -> None:
        self.metrics.take(engine, {**STATE, **changes})

    def value(self, name: str, engine: int = 0, **labels: str) -> float | None:
        labels = {"engine": str(engine), **labels}
        text = generate_latest(self.registry).decode()
        found = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and sample.labels == labels
        ]
        assert len(found) < 2
        return found[0] if found else None


@pytest.fixture
def page() -> Page:
    page = Page()
    page.take()
    return page


def test_a_state_becomes_series(page):
    assert page.value("weft_engine_running") == 3
    assert page.value("weft_engine_waiting", queue="2") == 4
    assert page.value("weft_engine_displacements_total") == 2
    assert page.value("weft_engine_recomputed_tokens_total") == 40
    assert page.value("weft_engine_promotions_total") == 1
    assert page.value("weft_engine_demotions_total") == 7
    assert page.value("weft_engine_kv_usage_ratio") == 0.5
    assert page.value("weft_engine_deferred") == 2
    assert page.value("weft_engine_policy", policy="plas") == 1
    assert page.value("weft_engine_kv_blocks", tag="RESPONSE") == 6
    assert page.value("weft_engine_part", part="kv", count="pins") == 1
    assert page.value("weft_engine_part", part="swap", count="slots") == 8


def test_totals_only_grow_and_are_those_of_the_engine(page):
    page.take(displacements=5)
    page.take(displacements=5)
    assert page.value("weft_engine_displacements_total") == 5
    page.take(engine=1, displacements=1)
    assert page.value("weft_engine_displacements_total", engine=1) == 1
    assert page.value("weft_engine_displacements_total") == 5


def test_missing_labels_are_set_to_zero(page):
    page.take(policy="fcfs", waiting_by_queue={"1": 1}, kv=None, swap=None)
    assert page.value("weft_engine_waiting", queue="2") == 0
    assert page.value("weft_engine_waiting", queue="1") == 1
    assert page.value("weft_engine_policy", policy="plas") == 0
    assert page.value("weft_engine_policy", policy="fcfs") == 1
    assert page.value("weft_engine_part", part="kv", count="pins") == 0


def test_tenants_have_no_separate_series():
    page = Page()
    page.take(kv={"pins": 1, "pinned_blocks_by_tenant": {"digest": 5}})
    samples = [s for family in page.registry.collect() for s in family.samples]
    counts = {s.labels["count"] for s in samples if s.name == "weft_engine_part"}
    assert "pins" in counts
    assert not any("digest" in count for count in counts)
