"""Throughput at equal latency."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import Cell, measured
from weft_bench.studies.helium_online import FIGURE_12


def test_throughput_is_compared_at_equal_latency() -> None:
    def p95(cell: Cell) -> float:
        load = cell.number("load")
        return 2.0 ** ((load if cell.text("system") == "joined" else load + 0.15) / 0.15)

    every = [
        (cell, {"p95": p95(cell), "p50": p95(cell) / 2, "hit_rate": 0.5, "batched": 3.0})
        for cell in FIGURE_12.cells(False)
    ]
    (goal,) = FIGURE_12.goals(measured(every))
    assert goal.found.middle == pytest.approx(0.85 / 0.7)
    assert not goal.met
    scores = FIGURE_12.headline(measured(every)).scores
    assert [one.ratio.middle for one in scores] == pytest.approx([0.5] * 6)
    gains = FIGURE_12.tables(measured(every))[1]
    for row, name in ((0, "map-reduce-context"), (-1, "all")):
        assert dict(zip(gains.columns, gains.rows[row], strict=True)) == {
            "workflow": name,
            **dict.fromkeys(("topological", "longest prefix", "parrot", "kvflow", "alone"), "1.00"),
            "joined": "1.21",
        }


@pytest.mark.parametrize(
    ("slower", "shown"), [(1 / 8, "≥ 1.64"), (8.0, "≤ 0.786")], ids=["fast", "slow"]
)
def test_a_system_outside_of_the_measured_loads_has_a_bound(slower: float, shown: str) -> None:
    def p95(cell: Cell) -> float:
        factor = slower if cell.text("system") == "joined" else 1.0
        return float(factor * 2.0 ** (cell.number("load") / 0.15))

    every = [
        (cell, {"p95": p95(cell), "p50": p95(cell) / 2, "hit_rate": 0.5, "batched": 3.0})
        for cell in FIGURE_12.cells(False)
    ]
    assert FIGURE_12.tables(measured(every))[1].rows[-1][-1] == shown


def test_systems_receive_the_same_requests() -> None:
    for quick in (False, True):
        scenes: dict[str, set[object]] = {}
        for cell in FIGURE_12.cells(quick):
            settings = tuple(one for one in cell.settings if one[0] != "system")
            scenes.setdefault(cell.text("system"), set()).add((settings, cell.seed))
        assert len({frozenset(found) for found in scenes.values()}) == 1
    assert FIGURE_12.first_seed >= 100
