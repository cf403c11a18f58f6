"""Loads from host memory, and the cost of evicted contexts."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from weft_engine.loads import Loads, ReloadCost

TOKEN_S = 0.001


def test_without_host_memory_evicted_contexts_are_computed():
    cost = ReloadCost()
    assert cost.share == 1
    cost.note(1000, 0, 0.0, TOKEN_S)
    assert cost.share == 1


def test_loads_count_with_their_time_and_the_rest_is_computed():
    cost = ReloadCost()
    # 900 tokens are loaded in the time in which 50 are computed.
    cost.note(100, 900, 50 * TOKEN_S, TOKEN_S)
    assert cost.share == pytest.approx(0.15)
    assert 0 < cost.loading < 0.1


def test_a_load_never_counts_more_than_computing_its_tokens():
    cost = ReloadCost()
    cost.note(100, 900, 1e6, TOKEN_S)
    assert cost.share == 1


def test_contexts_that_left_host_memory_are_soon_expensive_again():
    cost = ReloadCost()
    for _ in range(100):
        cost.note(0, 1000, 0.0, TOKEN_S)
    assert cost.share == 0
    for _ in range(8):
        cost.note(1000, 0, 0.0, TOKEN_S)
    assert cost.share > 0.5


@dataclass
class Request:
    request_id: str


@dataclass
class Engine:
    """Its requests that are loaded, and the reports to the cache rule."""

    names: list[str] = field(default_factory=list)
    reports: list[tuple[object, ...]] = field(default_factory=list)

    def loading(self) -> list[Request]:
        return [Request(name) for name in self.names]

    def missing_tokens_of(self, sequence: str) -> tuple[int, int]:
        return 16, 64

    def started(self, sequence: str) -> None:
        self.reports.append((sequence,))

    def returned(self, *report: object) -> None:
        self.reports.append(report)


def test_a_sequence_is_admitted_once_when_its_load_begins():
    engine = Engine(["a"])
    loads = Loads(engine)
    loads.note(engine, 1.0)
    loads.note(engine, 2.0)
    assert engine.reports == [("a",)]
    engine.names = []
    loads.started("a", engine, 3.0)
    assert engine.reports == [("a",), ("a", 16, 64, 2.0)]
    assert loads.began == {}


def test_a_sequence_without_a_load_is_admitted_when_it_runs():
    engine = Engine()
    loads = Loads(engine)
    loads.note(engine, 1.0)
    loads.started("a", engine, 3.0)
    assert engine.reports == [("a",), ("a", 16, 64, 0.0)]


def test_orders_without_a_cache_rule_need_no_reports():
    engine = Engine(["a"])
    loads = Loads(engine)
    loads.note(None, 1.0)
    loads.started("a", None, 3.0)
    assert engine.reports == []
