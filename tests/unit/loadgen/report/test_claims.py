"""Claims of a paper and the figures of this project."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest
from weft_bench.report.results.claims import reached
from weft_bench.studies.cells import Estimate
from weft_bench.studies.experiment import Claim, less, more


@pytest.mark.parametrize(
    ("ratio", "bound", "expected"),
    [
        ((2.1, 1.9, 2.3), "", "reached"),
        ((1.8, 1.5, 2.1), "", "within the interval"),
        ((1.5, 1.2, 1.9), "", "not reached"),
        ((2.1, 1.9, 2.3), "≥", "reached"),
        ((1.5, 1.2, 2.9), "≥", "unknown, a bound"),
        ((1.5, 1.2, 2.9), "≤", "not reached"),
        ((2.5, 1.2, 2.9), "≤", "unknown, a bound"),
        ((2.5, 1.2, 2.9), "?", ""),
        ((nan, nan, nan), "", ""),
    ],
)
def test_more_is_compared_with_the_published_figure(
    ratio: tuple[float, float, float], bound: str, expected: str
) -> None:
    score = replace(more("", Estimate(*ratio)), bound=bound)
    assert reached(Claim("load, plas", "mlfq", score, "up to 2", 2.0)) == expected


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        ((0.8, 0.7, 0.95), "reached"),
        ((0.95, 0.85, 1.1), "within the interval"),
        ((1.2, 1.0, 1.4), "not reached"),
    ],
)
def test_less_is_compared_with_the_published_figure(
    ratio: tuple[float, float, float], expected: str
) -> None:
    claim = Claim("makespan, plas", "mlfq", less("", Estimate(*ratio)), "0.6 to 0.9", 0.9)
    assert reached(claim) == expected


def test_claims_without_a_number_are_not_judged() -> None:
    claim = Claim("waiting, plas", "mlfq", less("", Estimate(0.5, 0.4, 0.6)), "less")
    assert reached(claim) == ""
    assert claim.score.name == "waiting, plas over mlfq"
