"""Tables of HexGen-Flow: stages by replica."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import Cell, measured
from weft_bench.studies.hexgen_tables import TABLE_2


def test_stages_are_shown_beside_the_published_shares():
    found = measured(
        (cell, {f"stage{s}_replica{r}": 25.0 for s in range(1, 5) for r in range(4)})
        for cell in TABLE_2.cells(False)
    )
    (table,) = TABLE_2.tables(found)
    assert len(table.rows) == 12
    assert table.rows[1] == ("1", "work", "25.0; 0.9", "25.0; 0.5", "25.0; 32.3", "25.0; 6.1")
    assert table.rows[2] == ("1", "soonest", "25.0", "25.0", "25.0", "25.0")


@pytest.mark.slow
@pytest.mark.engine
def test_stages_are_measured():
    stages = TABLE_2.measure(_short(TABLE_2.cells(True)[0]))
    for replica in range(4):
        assert sum(stages[f"stage{stage}_replica{replica}"] for stage in range(1, 5)) == (
            pytest.approx(100)
        )


def _short(cell: Cell) -> Cell:
    return Cell((*(one for one in cell.settings if one[0] != "queries"), ("queries", 8)), 0)
