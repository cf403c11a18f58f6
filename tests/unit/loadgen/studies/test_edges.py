"""Tables and headlines of the workloads on which Weft is expected to lose."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import Cell, Measured, measured
from weft_bench.studies.edge_scenes import EDGES
from weft_bench.studies.edges import EXPERIMENT
from weft_bench.studies.simulating import SYSTEMS


def _found(ours: float, spread: float = 0.0) -> Measured:
    """Return measurements. ours: Weft's latency; all others have 10. spread: between seeds."""

    def values(cell: Cell) -> dict[str, float]:
        latency = ours * (1 + spread * (cell.seed - 1)) if cell["system"] == "weft" else 10.0
        return {"latency": latency, "latency_p99": latency, "hit_rate": 0.5}

    return measured((cell, values(cell)) for cell in EXPERIMENT.cells(False))


@pytest.mark.parametrize(
    ("ours", "spread", "outcome"), [(20.0, 0.0, "lost"), (5.0, 0.0, "won"), (10.0, 0.1, "open")]
)
def test_headline_follows_from_the_figures(ours: float, spread: float, outcome: str) -> None:
    scores = EXPERIMENT.headline(_found(ours, spread)).scores
    assert len(scores) == len(EDGES) == len(EXPERIMENT.notes)
    assert {score.outcome for score in scores} == {outcome}


def test_each_workload_is_compared_with_its_rival_and_the_others() -> None:
    (table,) = EXPERIMENT.tables(_found(20.0))
    assert len(table.rows) == len(EDGES)
    assert {row[table.columns.index("weft over rival")] for row in table.rows} == {"2.00"}
    assert {row[table.columns.index("over mlfq")] for row in table.rows} == {"2.00"}


def test_quick_form_plays_only_rivals_and_fewer_programs() -> None:
    quick, full = EXPERIMENT.cells(True), EXPERIMENT.cells(False)
    assert {cell.text("system") for cell in quick} == {"weft", "rival"}
    assert quick[0].number("programs") < full[0].number("programs")


def test_rival_with_another_balancer_equals_weft_otherwise() -> None:
    (edge,) = [edge for edge in EDGES if edge.system.balancer != "locality"]
    ours = SYSTEMS["weft"]
    assert edge.system.balancer == "prefix_tree"
    assert (edge.system.order, edge.system.tags, edge.system.swap) == (
        ours.order,
        ours.tags,
        ours.swap,
    )
