"""Figures of the overhead bench."""

from __future__ import annotations

from weft_bench.overhead import command as overhead
from weft_bench.overhead.command import Cell
from weft_bench.report.rows import figures

CELLS = {
    ("direct", False, 8): Cell(1000.0, 1.0, 2.0, 0),
    ("weft", False, 8): Cell(600.0, 1.5, 4.0, 0),
    ("litellm", False, 8): Cell(50.0, 20.0, 90.0, 1),
}


def test_latency_is_what_the_proxy_adds_and_rates_are_compared():
    found = {f.name: (f.value, f.unit) for f in figures(overhead.rows(CELLS), overhead.COLUMNS)}
    assert found["plain/8/weft/rate"] == (600.0, "requests/s")
    assert found["plain/8/weft/added_p50"] == (0.5, "ms")
    assert found["plain/8/litellm/added_p99"] == (88.0, "ms")
    assert found["plain/8/litellm/weft_rate_ratio"] == (12.0, "1")
    assert found["plain/8/litellm/errors"] == (1, "requests")
    assert "plain/8/weft/weft_rate_ratio" not in found


def test_the_middle_round_counts_and_errors_add_up():
    rounds = [Cell(1.0, 3.0, 9.0, 1, 5), Cell(3.0, 1.0, 7.0, 0, 7), Cell(2.0, 2.0, 8.0, 1, 6)]
    assert overhead.median(rounds) == Cell(2.0, 2.0, 8.0, 2, 6)
