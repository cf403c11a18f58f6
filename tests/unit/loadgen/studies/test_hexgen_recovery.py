"""Queries in time after a peak of load."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import Cell, cells, measured
from weft_bench.studies.hexgen import Scene, _arrivals, parts
from weft_bench.studies.hexgen_recovery import RECOVERY


def test_the_goal_is_that_of_our_queries_after_one_window():
    found = {}
    for cell in RECOVERY.cells(False):
        late = 0.97 if cell["system"] == "flow" else 0.5
        found[cell] = {"before": 1.0, "peak": 0.1, "first": 0.6, "later": late}
    (table,) = RECOVERY.tables(measured(found.items()))
    assert table.rows[-1] == ("flow", "1.00", "0.100", "0.600", "0.970")
    (goal,) = RECOVERY.goals(measured(found.items()))
    assert goal.met
    (missed,) = RECOVERY.goals(
        measured((cell, {**values, "later": 0.9}) for cell, values in found.items())
    )
    assert not missed.met


def test_parts_of_a_shift_have_the_rates_of_its_factors():
    scene = Scene("text2sql-3", queries=600, rate=1.0, shift="0.5,2,0.5,0.5")
    begin, rise, fall, third, end = parts(scene, 3)
    assert {round(b - a, 6) for a, b in ((begin, rise), (rise, fall), (third, end))} == {
        round(600 / 3.5, 6)
    }
    arrivals = [time for time in _arrivals(scene, 3) if time >= begin]
    in_peak = sum(rise <= time < fall for time in arrivals)
    before = sum(begin <= time < rise for time in arrivals)
    assert in_peak == pytest.approx(4 * before, rel=0.25)


@pytest.mark.slow
@pytest.mark.engine
def test_attainment_is_measured_before_in_and_after_the_peak():
    (cell,) = cells(1, system="flow", queries=30, **_scene())
    found = RECOVERY.measure(cell)
    assert found.keys() == {"before", "peak", "first", "later"}
    assert all(0 <= value <= 1 for value in found.values())


def _scene():
    cell: Cell = RECOVERY.cells(True)[0]
    return {name: value for name, value in cell.settings if name not in ("system", "queries")}
