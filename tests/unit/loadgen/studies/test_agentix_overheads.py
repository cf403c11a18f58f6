"""Tables of the experiments on the breakdown of a token's time and on swaps."""

from __future__ import annotations

from support.experiments import made_up
from weft_bench.studies.agentix_overheads import FIGURE_17, FIGURE_18
from weft_bench.studies.agentix_single import FIGURE_12


def test_time_of_a_token_is_broken_down_without_the_scheduler() -> None:
    found = made_up(FIGURE_17, lambda cell: 3.0 if cell["system"] == "vllm-opt" else 1.5)
    tables = FIGURE_17.tables(found)
    assert len(tables) == 2
    place = tables[0].columns.index("waiting over vllm-opt's")
    assert {row[1]: row[place] for row in tables[0].rows}["mlfq"] == "0.500"
    assert "weft bench scheduler" in FIGURE_17.notes[-1]
    assert set(FIGURE_17.cells(False)) < set(FIGURE_12.cells(False))


def test_swaps_are_compared_with_slower_swaps_and_none() -> None:
    found = made_up(
        FIGURE_18,
        lambda cell: (
            dict(cell.settings).get("swap_cost", 1.0) * (2.0 if cell["system"] == "mlfq" else 1.0)
        ),
    )
    (table,) = FIGURE_18.tables(found)
    ratios = {row[3]: row[5] for row in table.rows}
    assert ratios == {"batched": "1.00", "block by block": "5.00", "no swap": "1.00"}
    assert "assumed" in table.title
    place = table.columns.index("over mlfq's")
    assert {row[2]: row[place] for row in table.rows} == {
        "mlfq": "1.00",
        "plas": "0.500",
        "weft": "0.500",
    }
