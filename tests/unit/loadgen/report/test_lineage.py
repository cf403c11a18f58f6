"""Pairs of calls, and the tables."""

from __future__ import annotations

from weft_bench.report.lineage import Pairs, Row, figures, pairs, show


def test_pairs_count_what_is_together():
    assert pairs([(0, "a"), (0, "a"), (1, "b"), (1, "b")]) == Pairs(1.0, 1.0)
    assert pairs([(0, "a"), (0, "a"), (0, "b"), (1, "b")]) == Pairs(1 / 2, 1 / 3)
    assert pairs([(0, "a"), (1, "b")]) == Pairs(1.0, 1.0)


def test_the_table_and_the_figures_hold_every_row(capsys):
    row = Row(
        calls=10, programs=2, at_once=Pairs(0.99, 0.9), in_the_end=Pairs(1.0, 0.95),
        with_text=Pairs(0.98, 0.97), calls_with_text=9, ask_us=[1.0, 3.0], answer_us=[5.0],
        held_bytes=12_345, fingerprints=7,
    )  # fmt: skip
    rows, costs = {("set", "one"): row, ("set", "two"): row}, {"long, new": [400.0]}
    show(rows, costs)
    printed = capsys.readouterr().out
    for expected in ("set", "one", "two", "0.9900", "0.9700", "0.9500", "12", "long, new", "400"):
        assert expected in printed
    found = {figure.name: figure.value for figure in figures(rows, costs)}
    assert found["set/one/with_text/recall"] == 0.97
    assert found["set/two/ask/p50"] == 2.0
    assert found["cost/long, new/p99"] == 400.0
