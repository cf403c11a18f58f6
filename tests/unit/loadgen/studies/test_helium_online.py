"""Throughput at equal latency."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import Cell, measured
from weft_bench.studies.helium_online import FIGURE_12, load_at


@pytest.mark.parametrize(
    ("p95", "load"),
    [(1.0, 0.7), (2.0, 0.85), (4.0, 1.0), (2.0**0.5, 0.775), (8.0, 1.15), (0.001, 0.5), (99, 1.3)],
)
def test_the_load_of_a_percentile_is_interpolated(p95: float, load: float) -> None:
    assert load_at({0.7: 1.0, 0.85: 2.0, 1.0: 4.0}, p95) == pytest.approx(load)


def test_a_curve_that_does_not_rise_has_one_of_its_loads() -> None:
    assert load_at({0.7: 2.0, 0.85: 2.0}, 3.0) == 0.85
    assert load_at({0.7: 2.0, 0.85: 2.0}, 1.0) == 0.7


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
    assert dict(zip(gains.columns, gains.rows[0], strict=True)) == {
        "workflow": "map-reduce-context",
        **dict.fromkeys(("topological", "longest prefix", "parrot", "kvflow", "alone"), "1.00"),
        "joined": "1.21",
    }


def test_systems_receive_the_same_requests() -> None:
    for quick in (False, True):
        scenes: dict[str, set[object]] = {}
        for cell in FIGURE_12.cells(quick):
            settings = tuple(one for one in cell.settings if one[0] != "system")
            scenes.setdefault(cell.text("system"), set()).add((settings, cell.seed))
        assert len({frozenset(found) for found in scenes.values()}) == 1
    assert FIGURE_12.first_seed >= 100
