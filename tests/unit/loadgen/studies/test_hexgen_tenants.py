"""Tenants of HexGen-Flow's experiments: figures, cells and tables."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import Cell, cells, measured
from weft_bench.studies.hexgen_tenants import FIGURE_8, jain, measure


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.5, 0.5], 1.0), ([1.0, 0.0], 0.5), ([0.9, 0.8, 0.7], 5.76 / 3 / 1.94), ([0.0, 0.0], 1.0)],
)
def test_jains_index(values: list[float], expected: float):
    assert jain(values) == pytest.approx(expected)


def test_ratios_of_the_liar_compare_its_own_queries():
    found = measured(
        (cell, {"jain": 0.9, "first_slowdown": slowdown, "others_slowdown": 4.0})
        for system in ("hexgen", "flow")
        for lie, slowdown in (("none", 4.0), ("half of the deadline", 2.0))
        for cell in cells(2, case="ten", tenants=10, lie=lie, system=system)
    )
    *_, lies = FIGURE_8.tables(found)
    at = lies.columns.index("honest over lying")
    assert [row[at] for row in lies.rows] == ["1.00", "2.00", "1.00", "2.00"]
    (score,) = FIGURE_8.headline(found).scores
    assert score.outcome == "lost"
    assert score.ratio.middle == pytest.approx(2.0)


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize("system", ["vtc", "hexgen", "flow"])
def test_a_lie_and_tenants_reach_the_engines(system: str):
    scene = {"trace": "text2sql-3", "pool": "hetero-1", "rate": 2.0, "queries": 8, "cache": True}
    found = {
        lie: measure(_cell(lie=lie, system=system, **scene))
        for lie in ("none", "a quarter of the deadline", "30 later calls")
    }
    honest, lying, longer = found.values()
    # VTC does not read deadlines.
    assert (honest == lying == longer) is (system == "vtc")
    assert 0.5 <= honest["jain"] <= 1.0


def _cell(**settings: str | float | bool) -> Cell:
    (cell,) = cells(1, case="ten", tenants=2, scale=4.0, **settings)
    return Cell(cell.settings, -90)
