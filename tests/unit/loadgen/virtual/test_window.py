"""The programs of a steady window."""

from __future__ import annotations

import pytest
from weft_bench.virtual.records import ProgramRecord, steady


def program(arrival: float, end: float) -> ProgramRecord:
    return ProgramRecord(f"p{arrival}", arrival, end, 1, 1, 0.0, 0.0, 1, 0, 0, 0, ("r",))


def test_window_is_the_middle_of_the_arrivals():
    found = steady([program(10.0 + 10 * n, 200.0) for n in range(11)])
    assert (found.begin_s, found.end_s) == (35.0, 85.0)
    assert [p.arrival_s for p in found.programs] == [40.0, 50.0, 60.0, 70.0, 80.0]


def test_programs_that_end_after_the_last_arrival_are_not_loaded():
    ends = {0.0: 1.0, 30.0: 99.0, 40.0: 100.0, 50.0: 101.0, 60.0: 500.0, 100.0: 600.0}
    assert steady([program(a, e) for a, e in ends.items()]).loaded == 0.5


@pytest.mark.parametrize("shares", [(0.5, 0.5), (-0.1, 0.5), (0.2, 1.1), (0.8, 0.2)])
def test_invalid_shares_are_refused(shares):
    with pytest.raises(ValueError, match="window"):
        steady([program(0.0, 1.0), program(1.0, 2.0)], *shares)


def test_window_without_programs_is_refused():
    with pytest.raises(ValueError, match="no program arrived"):
        steady([program(0.0, 1.0), program(100.0, 101.0)])
    with pytest.raises(ValueError, match="no programs"):
        steady([])
