"""Tables of HexGen-Flow: stages by replica, and the tuned alpha."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import Cell, cells, measured
from weft_bench.studies.hexgen_tables import TABLE_2, TABLE_4


def test_stages_are_shown_beside_the_published_shares():
    found = measured(
        (cell, {f"stage{s}_replica{r}": 25.0 for s in range(1, 5) for r in range(4)})
        for cell in TABLE_2.cells(False)
    )
    (table,) = TABLE_2.tables(found)
    assert len(table.rows) == 12
    assert table.rows[1] == ("1", "work", "25.0; 0.9", "25.0; 0.5", "25.0; 32.3", "25.0; 6.1")
    assert table.rows[2] == ("1", "soonest", "25.0", "25.0", "25.0", "25.0")


def _tuning(p95_s: float, cpu_s: float):
    common = {"pool": "hetero-1", "cache": True, "system": "hexgen"}
    found = {
        cell: {"latency_p95": 100.0 + 10 * abs(alpha - 0.3)}
        for alpha in (0.0, 0.3, 0.5)
        for cell in cells(3, case="fixed", alpha=alpha, **common)
    }
    for cell in cells(3, case="tuned", **common):
        found[cell] = {"latency_p95": p95_s, "alpha": 0.2, "cpu_s": cpu_s, "calls": 9000.0}
    return measured(found.items())


def test_tuned_alpha_is_compared_with_the_best_of_the_sweep():
    (table,) = TABLE_4.tables(_tuning(102.0, 2.0))
    assert table.rows == [("hetero-1", "on", "0.200", "2.00", "9,000", "102", "0.3", "100", "1.02")]
    assert [goal.met for goal in TABLE_4.goals(_tuning(102.0, 2.0))] == [True, True]
    missed = list(map(str, TABLE_4.goals(_tuning(104.0, 6.0))))
    assert missed == [
        "missed: hetero-1, cache on: P95 latency, tuned over the best: 1.04, goal at most 1.03",
        "missed: hetero-1, cache on: CPU s of a tuning: 6.00, goal at most 5",
    ]


@pytest.mark.slow
@pytest.mark.engine
def test_stages_and_a_tuning_are_measured():
    stages = TABLE_2.measure(_short(TABLE_2.cells(True)[0]))
    for replica in range(4):
        assert sum(stages[f"stage{stage}_replica{replica}"] for stage in range(1, 5)) == (
            pytest.approx(100)
        )
    tuned = TABLE_4.measure(_short(TABLE_4.cells(True)[0]))
    assert 0 <= tuned["alpha"] <= 1
    assert tuned["cpu_s"] > 0
    # Each candidate replays a part of the calls at least.
    assert tuned["calls"] > 11 * 28


def _short(cell: Cell) -> Cell:
    return Cell((*(one for one in cell.settings if one[0] != "queries"), ("queries", 8)), 0)
