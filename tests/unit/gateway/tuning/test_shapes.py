"""Shapes of calls, the order of a program's calls, and times of units."""

from __future__ import annotations

import math

import pytest
from support.tuning import shape
from weft_gateway.tuning.shapes import busy_s, in_order, opaque, unit_of


def test_a_call_waits_for_the_calls_that_had_ended() -> None:
    first, left, right = shape(end=1.0), shape(begin=1.5, end=3.0), shape(begin=1.5, end=4.0)
    last = shape(begin=4.5, end=6.0)
    steps = in_order([last, right, left, first])
    assert [step.after for step in steps] == [(), (0,), (0,), (1, 2)]
    assert [step.gap_s for step in steps] == [0.0, 0.5, 0.5, 0.5]


def test_parallel_first_calls_keep_their_distance_to_the_begin() -> None:
    steps = in_order([shape(begin=10.0, end=14.0), shape(begin=11.0, end=12.0)])
    assert [(step.after, step.gap_s) for step in steps] == [((), 0.0), ((), 1.0)]


def test_slowdown_leaves_out_pauses() -> None:
    unit = unit_of([shape(end=4.0), shape(begin=100.0, end=102.0)])
    assert (unit.latency_s, unit.served_s, unit.alone_s, unit.slowdown) == (102.0, 6.0, 2.0, 3.0)


def test_the_time_alone_counts_parallel_calls_once() -> None:
    calls = [shape(end=2.0, alone_s=2.0), shape(end=2.0, alone_s=1.0), shape(begin=2.0, end=3.0)]
    assert unit_of(calls).alone_s == 3.0


def test_an_unknown_time_alone_makes_the_slowdown_unknown() -> None:
    assert unit_of([shape(), shape(begin=1.0, end=2.0, alone_s=0.0)]).slowdown == 0.0


def test_spans_are_united() -> None:
    assert busy_s([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0), (5.2, 5.4)]) == 4.0


@pytest.mark.parametrize(
    ("field", "value"),
    [("prompt", -1), ("end_s", -1.0), ("alone_s", math.nan), ("cost_s", math.inf)],
)
def test_impossible_values_are_named(field: str, value: float) -> None:
    import msgspec

    assert msgspec.structs.replace(shape(), **{field: value}).flaw() == field
    assert shape().flaw() == ""


def test_names_become_numbers() -> None:
    assert isinstance(opaque("tenant", "program"), int)
    assert opaque("a", "b") != opaque("b", "a")
    assert opaque("\ud800") == opaque("\ud800")
