"""The rules of the paper and of slowdown."""

from __future__ import annotations

from weft_gateway.model.options import Tuning
from weft_gateway.tuning.shapes import unit_of
from weft_gateway.tuning.triggers import RULES
from weft_gateway.tuning.window import summary

from support.tuning import shape  # isort: skip

PAPER, SLOWDOWN = RULES[Tuning.PAPER], RULES[Tuning.SLOWDOWN]


def units(count: int, latency: float, alone: float):
    return [
        unit_of([shape(number, end=latency + number % 3 / 10, alone_s=alone)])
        for number in range(1, count + 1)
    ]


def test_the_paper_compares_latencies_of_five_queries() -> None:
    old, new = PAPER.summary(units(5, 1.0, 1.0)), PAPER.summary(units(5, 2.0, 1.0))
    assert PAPER.triggers(new, old)[0]
    assert not PAPER.triggers(old, new)[0]
    assert not PAPER.triggers(PAPER.summary(units(4, 2.0, 1.0)), old)[0]


def test_another_mix_of_programs_is_no_regression_of_slowdown() -> None:
    short, long = units(40, 1.0, 0.5), units(40, 10.0, 5.05)
    assert PAPER.triggers(PAPER.summary(long), PAPER.summary(short))[0]
    assert not SLOWDOWN.triggers(SLOWDOWN.summary(long), SLOWDOWN.summary(short))[0]


def test_slowdown_needs_thirty_programs() -> None:
    old, new = units(30, 1.0, 0.5), units(30, 2.0, 0.5)
    assert SLOWDOWN.triggers(SLOWDOWN.summary(new), SLOWDOWN.summary(old))[0]
    assert not SLOWDOWN.triggers(SLOWDOWN.summary(new[:29]), SLOWDOWN.summary(old))[0]
    unknown = units(30, 2.0, 0.0)
    assert SLOWDOWN.summary(unknown).count == 0


def test_a_change_is_worse_on_weaker_evidence() -> None:
    before, after = summary([1.0, 1.1, 1.2, 1.3] * 3), summary([1.1, 1.2, 1.3, 1.35] * 3)
    assert SLOWDOWN.worse(after, before)
    assert not SLOWDOWN.worse(before, after)
