"""Headlines of experiments."""

from __future__ import annotations

from math import nan

import pytest
from weft_bench.studies.cells import Estimate
from weft_bench.studies.experiment import Headline, less, more


@pytest.mark.parametrize(
    ("ends", "fewer", "greater"),
    [
        ((0.5, 0.4, 0.6), "won", "lost"),
        ((1.5, 1.2, 1.9), "lost", "won"),
        ((0.9, 0.7, 1.2), "open", "open"),
        ((1.0, 1.0, 1.0), "open", "open"),
        ((nan, nan, nan), "open", "open"),
    ],
)
def test_outcome_follows_from_the_interval(
    ends: tuple[float, float, float], fewer: str, greater: str
) -> None:
    assert less("x", Estimate(*ends)).outcome == fewer
    assert more("x", Estimate(*ends)).outcome == greater


def test_score_has_the_ratio_and_its_direction() -> None:
    ratio = Estimate(0.5, 0.4, 0.6)
    assert (less("x", ratio).ratio, less("x", ratio).less) == (ratio, True)
    assert (more("x", ratio).ratio, more("x", ratio).less) == (ratio, False)
    assert less("x", ratio, "50%").shown == "50%"


def test_outcomes_are_counted() -> None:
    scores = [less("a", Estimate(0.5, 0.4, 0.6)), less("b", Estimate(0.9, 0.7, 1.2))]
    found = Headline("latency over fcfs's", scores)
    assert sorted(score.outcome for score in found.scores) == ["open", "won"]
