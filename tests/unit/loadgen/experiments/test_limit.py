"""What is made of orders beside the clairvoyant one."""

from __future__ import annotations

from weft_bench.experiments.cells import Cell, Measured, measured
from weft_bench.experiments.limit import EXPERIMENT


def _found(mlfq: float) -> Measured:
    """srpt takes 10, everybody else 20, mlfq so long."""

    def values(cell: Cell) -> dict[str, float]:
        order = dict(cell.settings).get("order", cell["system"])
        latency = {"srpt": 10.0, "mlfq": mlfq}.get(str(order), 20.0)
        steady = {"steady_latency": 0.5 * latency, "loaded": 0.9}
        return {"latency": latency, "latency_p95": 2 * latency, "hit_rate": 0.5, **steady}

    return measured((cell, values(cell)) for cell in EXPERIMENT.cells(False))


def test_orders_are_told_apart_though_they_share_a_system() -> None:
    tables = EXPERIMENT.tables(_found(15.0))
    assert [table.title.partition(":")[0] for table in tables] == [
        "sharegpt",
        "bfcl",
        "lats",
        "mixed",
    ]
    ratios = {row[0]: row[2] for row in tables[2].rows}
    assert ratios["srpt"] == "1.00"
    assert ratios["plas"] == ratios["program_fifo"] == "2.00"
    assert ratios["mlfq"] == "1.50"
    assert "atlas" in ratios
    assert "atlas" not in {row[0] for row in tables[0].rows}


def test_the_nearest_order_is_named() -> None:
    said = EXPERIMENT.findings(_found(15.0))
    assert len(said) == 4
    assert "weft 2.00 times the latency of srpt (2.00 in the middle half)" in said[0]
    assert "nearest is mlfq with 1.50" in said[0]


def test_a_limit_that_is_none_is_said_to_be_none() -> None:
    assert any("srpt is no limit there" in said for said in EXPERIMENT.findings(_found(5.0)))
