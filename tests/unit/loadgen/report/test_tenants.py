"""The figures of `weft bench tenants`: every slowdown is over the same order alone."""

from __future__ import annotations

from weft_bench.report.tenants import figures, show, slowdowns
from weft_bench.tenants.scenes import Column, Pinned

TIMES = {
    "plas": [Column("alone", 0.2, 80), Column("one", 0.3, 80), Column("fresh", 0.6, 80)],
    "vtc": [Column("alone", 0.5, 80), Column("one", 0.5, 80), Column("fresh", 1.0, 80)],
}
PINS = {"plas": Pinned(0.95, 0.90)}


def test_a_slowdown_is_over_the_same_order_alone() -> None:
    assert [round(ratio, 6) for _, ratio in slowdowns(TIMES["plas"])] == [1.5, 3.0]
    assert [round(ratio, 6) for _, ratio in slowdowns(TIMES["vtc"])] == [1.0, 2.0]


def test_figures_hold_every_cell() -> None:
    found = {figure.name: figure.value for figure in figures(TIMES, PINS)}
    assert found["plas/alone/honest_call"] == 0.2
    assert round(found["vtc/fresh/slowdown"], 6) == 2.0
    assert found["plas/pins/hit_rate_after"] == 0.90


def test_the_table_names_the_worst(capsys: object) -> None:
    show(TIMES, PINS)
    out = capsys.readouterr().out  # type: ignore[attr-defined]
    assert "3.00" in out
    assert "0.050" in out
