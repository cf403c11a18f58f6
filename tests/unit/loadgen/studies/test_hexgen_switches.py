"""Forecasts and admission, each switched."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import Cell, measured
from weft_bench.studies.hexgen_switches import SWITCHES


def test_goals_compare_with_and_without_each_part():
    attained = {"flow": 0.6, "flow, no later call expected": 0.5, "flow, refuses": 0.4}
    found = measured(
        (cell, {"attained": attained[str(cell["part"])], "goodput": 0.1, "latency": 9.0})
        for cell in SWITCHES.cells(False)
    )
    assert [goal.met for goal in SWITCHES.goals(found)] == [True, False] * 3
    (table,) = SWITCHES.tables(found)
    assert len(table.rows) == 9


@pytest.mark.slow
@pytest.mark.engine
def test_each_part_is_played():
    figures = []
    for cell in SWITCHES.cells(True):
        if cell.seed == 0 and cell["scale"] == 3.0:
            short = (*(one for one in cell.settings if one[0] != "queries"), ("queries", 12))
            figures.append(SWITCHES.measure(Cell(short, 0)))
    assert len(figures) == 3
    assert all(0 <= one["attained"] <= 1 for one in figures)
