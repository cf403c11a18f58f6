"""Tight targets on engines with few slots."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import Cell, measured
from weft_bench.studies.hexgen_tight import TIGHT


@pytest.mark.parametrize(("ours", "met"), [(0.9, True), (0.5, False)])
def test_the_goal_is_over_the_papers_system(ours: float, met: bool):
    def figures(cell: Cell) -> dict[str, float]:
        attained = ours if cell["system"] == "flow" else 0.6
        return {"attained": attained, "slowdown_p95": 2.0, "latency": 9.0, "throughput": 0.1}

    found = measured((cell, figures(cell)) for cell in TIGHT.cells(False))
    (goal,) = TIGHT.goals(found)
    assert goal.met is met
    (table,) = TIGHT.tables(found)
    assert table.rows[-1][:2] == ("flow", f"{ours:.3f}")


@pytest.mark.slow
@pytest.mark.engine
def test_attainment_is_measured():
    cell = next(one for one in TIGHT.cells(True) if one["system"] == "flow")
    short = Cell((*(one for one in cell.settings if one[0] != "queries"), ("queries", 8)), 0)
    assert 0 <= TIGHT.measure(short)["attained"] <= 1
