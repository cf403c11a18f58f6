"""Tables of the experiment on batches of programs."""

from __future__ import annotations

from support.experiments import made_up
from weft_bench.studies.agentix_offline import FIGURE_16


def test_makespans_are_compared_with_wefts() -> None:
    found = made_up(
        FIGURE_16, lambda cell: cell.number("programs") * (0.5 if cell["system"] == "weft" else 1.0)
    )
    (table,) = FIGURE_16.tables(found)
    ratios = {row[1]: row[3] for row in table.rows}
    assert ratios == {"vllm": "0.500", "vllm-opt": "0.500", "mlfq": "0.500", "plas": "0.500"} | {
        "weft": "1.00"
    }
