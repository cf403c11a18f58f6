"""Placement of operators, as an experiment."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import measured
from weft_bench.studies.halo import TABLE_4, measure, measure_planning


def test_no_placement_is_better_than_the_optimum() -> None:
    cell = next(cell for cell in TABLE_4.cells(True) if cell.text("job") == "W4 vote")
    values = measure(cell)
    assert values["proven"] == 1
    assert min(values[name] for name in ("beam", "dynamic", "weft")) >= values["exact"] - 1e-9
    assert values["weft over optimum"] == pytest.approx(values["weft"] / values["exact"])


def test_planning_is_timed_for_each_placement() -> None:
    values = measure_planning(TABLE_4.cells(True)[0])
    assert values["ms of weft"] > 0
    assert values["limit_ms"] == 100


def test_tables_compare_with_the_optimum_and_with_the_published_placements() -> None:
    cells = [cell for cell in TABLE_4.cells(True) if cell.text("job") == "W1 retrieval"]
    shares, published, _ = TABLE_4.tables(measured((cell, measure(cell)) for cell in cells))
    assert [row[0] for row in shares.rows] == [
        "round robin", "co-located", "data parallel", "beam", "dynamic", "weft",
    ]  # fmt: skip
    assert {row[0]: row[1] for row in published.rows}["data parallel"] == "100"
