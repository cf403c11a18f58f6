"""Separate effects of order and cache."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from weft_bench.studies.cells import Cell, Measured, measured
from weft_bench.studies.simulating import OURS
from weft_bench.studies.why import ENDLESS, EXPERIMENT, NONE, ORDERS, SHORT, UNTOLD


def _made(ratios: Mapping[str, float], order: str = "plas") -> Measured:
    """Return measurements. ratios: latency of `order` over that of fcfs, by world. All other orders
    equal fcfs.
    """

    def values(cell: Cell) -> dict[str, float]:
        ours = cell.text("order") == order
        factor = ratios[cell.text("world")] if ours else 1.0
        return {
            "latency": (20.0 + cell.seed) * factor,
            "latency_p95": 40.0,
            "waiting": 0.3,
            "hit_rate": 0.9 if ours else 0.6,
            "loaded": 1.0,
        }

    return measured((cell, values(cell)) for cell in EXPERIMENT.cells(False))


@pytest.mark.parametrize(
    ("ratios", "part"),
    [
        ({SHORT: 0.25, ENDLESS: 0.5, NONE: 0.5}, "50"),
        ({SHORT: 0.5, ENDLESS: 1.0, NONE: 1.0}, "0"),
        ({SHORT: 0.5, ENDLESS: 0.4, NONE: 0.4}, "100"),
        ({SHORT: 1.1, ENDLESS: 0.4, NONE: 0.4}, "-"),
        ({SHORT: 1.0, ENDLESS: 0.4, NONE: 0.4}, "-"),
    ],
)
def test_gain_is_attributed_to_scheduling_or_cache(ratios: Mapping[str, float], part: str) -> None:
    table = EXPERIMENT.tables(_made(ratios))[1]
    shown = {row[0]: row[-1] for row in table.rows}
    assert shown == {**dict.fromkeys(shown, "-"), "plas": part}


def test_every_order_without_deadlines_is_played_in_every_world() -> None:
    found = {(c.text("order"), c.text("world")) for c in EXPERIMENT.cells(False)}
    assert {order for order, _ in found} == {*ORDERS, UNTOLD}
    assert len(found) == 3 * len(ORDERS) + 1
    # Program ends have no effect on a cache that holds everything or nothing.
    assert (UNTOLD, SHORT) in found
    assert {"fcfs", "plas", "mlfq"} <= set(ORDERS)
    assert "urgency" not in ORDERS


def test_ratios_compare_with_fcfs_in_the_same_world() -> None:
    tables = EXPERIMENT.tables(_made({SHORT: 0.25, ENDLESS: 0.5, NONE: 0.75}))
    row = next(row for row in tables[1].rows if row[0] == "plas")
    assert [row[n].split()[0] for n in (2, 5, 8)] == ["0.250", "0.500", "0.750"]
    assert len(tables[1].columns) == len(row)


def test_weft_is_compared_with_its_rivals_over_more_seeds() -> None:
    tables = EXPERIMENT.tables(_made({SHORT: 2.0, ENDLESS: 1.0, NONE: 1.0}))
    rows = {(row[0], row[2]): row[3:] for row in tables[0].rows if row[1] == OURS}
    assert [one.split()[0] for one in rows["bfcl", "plas"][:2]] == ["0.500", "1.00"]
    assert rows["bfcl", "plas"][2] == "8 of 8"
    assert rows["bfcl", "mlfq"][2] == "0 of 8"
    quick = {(c.text("order"), c.seed) for c in EXPERIMENT.cells(True)}
    assert {seed for _, seed in quick} == {0, 1, 2}
