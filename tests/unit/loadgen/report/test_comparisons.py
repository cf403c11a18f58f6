"""Verdicts of the results page."""

from __future__ import annotations

from dataclasses import replace
from math import nan

from weft_bench.report.results.comparisons import Comparison, family_size, judged, suspected
from weft_bench.studies.cells import Estimate
from weft_bench.studies.experiment import Score, less, more


def _one(score: Score, seeds: tuple[int, ...] = (300, 301)) -> Comparison:
    return Comparison("edges", "Edges", "simulated", "latency over its", score, seeds)


def _ratio(middle: float, p: float) -> Estimate:
    return Estimate(middle, middle * 0.99, middle * 1.01, p=p)


def test_correction_decides_between_worse_and_no_difference() -> None:
    scores = [less(str(p), _ratio(1.5, p)) for p in (0.001, 0.04, 0.03)]
    found = judged([_one(score) for score in scores])
    assert [one.verdict for one in found] == ["worse", "no difference shown", "no difference shown"]
    assert [suspected(one) for one in found] == [False, True, True]
    assert family_size(found) == 3


def test_direction_follows_from_the_figure() -> None:
    found = judged([_one(less("a", _ratio(0.5, 0.001))), _one(more("b", _ratio(0.5, 0.001)))])
    assert [one.verdict for one in found] == ["better", "worse"]


def test_bound_is_no_value() -> None:
    bound = replace(more("a", _ratio(3.0, 1e-9)), bound="≥")
    found = judged([_one(bound), _one(less("b", _ratio(1.5, 0.04)))])
    assert [one.verdict for one in found] == ["a bound only", "worse"]
    assert family_size(found) == 1


def test_one_seed_and_unknown_ratios_have_no_verdict() -> None:
    single, unknown = less("a", Estimate(2.0, 2.0, 2.0)), less("b", Estimate(nan, nan, nan))
    found = judged([_one(single), _one(unknown)])
    assert [one.verdict for one in found] == ["one seed", "one seed"]
    assert not any(suspected(one) or one.tested for one in found)
    assert found[0].single
    assert not found[1].known


def test_seeds_below_100_are_not_fresh() -> None:
    score = less("a", _ratio(0.9, 0.5))
    assert _one(score, (100, 101)).fresh
    assert not _one(score, (99, 100)).fresh


def test_system_played_again_and_unreachable_opponents_do_not_count() -> None:
    assert _one(less("bfcl", _ratio(0.5, 0.1))).counts
    assert not _one(less("bfcl, without program ends", _ratio(0.5, 0.1))).counts
    assert not replace(_one(less("bfcl", _ratio(0.5, 0.1))), rival=False).counts
