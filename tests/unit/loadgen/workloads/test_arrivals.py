"""Arrival times of programs."""

from __future__ import annotations

import pytest
from weft_bench.workloads.arrivals import KINDS, RECORDED, STEPS, arrivals, stepped_arrivals
from weft_bench.workloads.statistics import arrival_figures
from weft_bench.workloads.streams import stream


@pytest.mark.parametrize("kind", KINDS)
def test_arrivals_are_ordered_and_have_the_rate(kind):
    times = arrivals(kind, stream(1, "arrivals"), 4.0, [None] * 60_000)
    assert times == sorted(times)
    assert len(times) / times[-1] == pytest.approx(4.0, rel=0.12)


@pytest.mark.parametrize(("kind", "variation"), [("poisson", 1.0), ("bursty", 13.0)])
def test_gaps_have_the_coefficient_of_variation(kind, variation):
    """13 is from Azure's code trace of November 2023."""
    times = arrivals(kind, stream(1, "arrivals"), 1.0, [None] * 60_000)
    assert arrival_figures(times)["arrivals CV"] == pytest.approx(variation, rel=0.1)


def test_each_step_has_its_own_rate():
    times = stepped_arrivals(stream(0, "arrivals"), 50.0, 12_000)
    begun = 0.0
    for seconds, factor in STEPS:
        came = sum(begun <= time < begun + seconds for time in times)
        assert came == pytest.approx(50 * factor * seconds, rel=0.08)
        begun += seconds


def test_step_with_rate_zero_has_no_arrivals():
    times = stepped_arrivals(stream(0, "arrivals"), 5.0, 500, ((10.0, 1.0), (10.0, 0.0)))
    assert len(times) == 500
    assert all(time % 20 <= 10 for time in times)
    with pytest.raises(ValueError, match="without arrivals"):
        stepped_arrivals(stream(0, "arrivals"), 5.0, 1, ((10.0, 0.0),))


def test_recorded_times_are_kept_or_scaled_to_the_rate():
    rng = stream(0, "arrivals")
    assert arrivals(RECORDED, rng, 0.0, [7.0, 8.0, 12.0]) == [0.0, 1.0, 5.0]
    assert arrivals(RECORDED, rng, 6.0, [7.0, 8.0, 12.0]) == pytest.approx([0.0, 0.1, 0.5])
    assert arrivals(RECORDED, rng, 6.0, [7.0]) == [0.0]


def test_unknown_kinds_and_missing_times_are_refused():
    with pytest.raises(ValueError, match="has no arrival times"):
        arrivals(RECORDED, stream(0, "arrivals"), 1.0, [1.0, None])
    with pytest.raises(ValueError, match="known are poisson"):
        arrivals("weekly", stream(0, "arrivals"), 1.0, [None])
