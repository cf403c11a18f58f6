"""Figures of the swap bench."""

from __future__ import annotations

from weft_bench.micro.swap import command as swap
from weft_bench.report.rows import figures

RATES = {
    ("out", 16, "copy_per_block"): 6.0,
    ("out", 16, "weft"): 48.0,
    ("out", 16, "limit"): 50.0,
    ("in", 16, "copy_per_block"): 12.0,
    ("in", 16, "weft"): 36.0,
    ("in", 16, "limit"): 48.0,
}


def test_weft_is_compared_with_each_other_method_per_cell():
    found = {f.name: (f.value, f.unit) for f in figures(swap.rows(RATES), swap.COLUMNS)}
    assert found["out/16/weft/rate"] == (48.0, "GB/s")
    assert found["out/16/copy_per_block/weft_rate_ratio"] == (8.0, "1")
    assert found["in/16/copy_per_block/weft_rate_ratio"] == (3.0, "1")
    assert found["in/16/limit/weft_rate_ratio"] == (0.75, "1")
    assert "out/16/weft/weft_rate_ratio" not in found


def test_range_covers_the_worst_and_the_best_cell():
    assert swap.ranges(RATES) == [
        "weft over copy_per_block: 3.00 to 8.00",
        "weft over limit: 0.75 to 0.96",
    ]
