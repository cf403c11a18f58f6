"""`weft bench tenants`: tables and missed goals."""

from __future__ import annotations

import pytest
from weft_bench.tenants.command import missed, slowdown, tables
from weft_bench.tenants.scenes import Column, Pinned

ALONE = Column("alone", False, [[0.1, 0.3], [0.2, 0.2]])


def column(seconds: float, control: bool = False, served: int = 5, **more: object) -> Column:
    return Column("fresh", control, [[seconds]], served=served, **more)  # type: ignore[arg-type]


def pinned(during: float, control: bool = False, blocks: int = 9) -> Pinned:
    return Pinned("pins", control, 0.95, during, blocks, 5, 0)


@pytest.mark.parametrize(
    ("order", "found", "says"),
    [
        ("plas", column(0.49), ""),
        ("plas", column(0.52), "plas, fresh: 2.60 times the mean alone, above the goal"),
        ("fcfs", column(9.0), ""),
        ("plas", column(0.52, control=True), ""),
        ("plas", column(0.49, control=True), "2.45 times the mean alone, which is no harm"),
        (
            "fcfs",
            column(0.2, served=0, why="429 limit"),
            "did not take place: no call served, 429",
        ),
        ("plas", column(0.4, stopped=2), "plas, fresh: 2 repeats reached the time limit"),
        ("plas", column(0.4, control=True, stopped=2), ""),
        ("plas", column(0.2, errors=["500 x"]), "plas, fresh: 1 honest calls failed: 500 x"),
    ],
)
def test_missed_slowdowns(order: str, found: Column, says: str) -> None:
    named = missed({order: [ALONE, found]}, {})
    assert len(named) == bool(says)
    assert says in "".join(named)


@pytest.mark.parametrize(
    ("order", "found", "says"),
    [
        ("plas", pinned(0.86), ""),
        ("plas", pinned(0.84), "plas, pins: the hit rate falls by 0.110, above the goal"),
        ("fcfs", pinned(0.1), ""),
        ("plas", pinned(0.1, control=True), ""),
        ("plas", pinned(0.9, control=True), "which is no harm"),
        ("plas", pinned(0.95, blocks=0), "did not take place: no pinned blocks"),
    ],
)
def test_missed_hit_rates(order: str, found: Pinned, says: str) -> None:
    named = missed({}, {order: [found]})
    assert len(named) == bool(says)
    assert says in "".join(named)


def test_slowdown_compares_with_the_same_order_without_an_attack() -> None:
    assert slowdown(column(0.6), ALONE) == pytest.approx(3.0)


def test_tables_show_spread_tail_and_attacker() -> None:
    slow, lost = tables({"plas": [ALONE, column(0.6, tokens=1234)]}, {"plas": [pinned(0.5)]})
    assert slow["rows"][0][:5] == ["plas", "alone", "0.200", "0.200 to 0.200", "0.285"]
    assert slow["rows"][1][5:] == ["3.00", "5", "0", "1,234"]
    stopped, _ = tables({"plas": [ALONE, column(0.6, stopped=1)]}, {})
    assert stopped["rows"][1][2] == ">= 0.600"
    assert stopped["rows"][1][5] == ">= 3.00"
    assert lost["rows"][0][2:] == ["0.950", "0.500", "0.450", "5", "0", "9"]
    for table in (slow, lost):
        assert {len(row) for row in table["rows"]} == {len(table["columns"])}
