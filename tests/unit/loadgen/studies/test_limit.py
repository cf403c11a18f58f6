"""Tables of orders compared with the clairvoyant one."""

from __future__ import annotations

from weft_bench.studies.cells import Cell, Measured, measured
from weft_bench.studies.limit import EXPERIMENT


def _found(mlfq: float) -> Measured:
    """Return measurements with latencies of 10 for srpt, 16 for resident_srpt, `mlfq` for mlfq and
    20 for all others."""

    def values(cell: Cell) -> dict[str, float]:
        order = dict(cell.settings).get("order", cell["system"])
        latency = {"srpt": 10.0, "resident_srpt": 16.0, "mlfq": mlfq}.get(str(order), 20.0)
        steady = {"steady_latency": 0.5 * latency, "loaded": 0.9}
        return {"latency": latency, "latency_p95": 2 * latency, "hit_rate": 0.5, **steady}

    return measured((cell, values(cell)) for cell in EXPERIMENT.cells(False))


def test_orders_of_one_system_are_separate_rows() -> None:
    (table,) = EXPERIMENT.tables(_found(15.0))
    assert list(dict.fromkeys(row[0] for row in table.rows)) == [
        "sharegpt",
        "bfcl",
        "lats",
        "mixed",
    ]
    place = table.columns.index("latency over srpt's")
    ratios = {row[2]: row[place] for row in table.rows if row[0] == "lats"}
    assert ratios["srpt"] == "1.00"
    assert ratios["plas"] == ratios["program_fifo"] == "2.00"
    assert ratios["mlfq"] == "1.50"
    place = table.columns.index("latency over resident_srpt's")
    assert {row[place] for row in table.rows if row[2] == "weft"} == {"1.25"}
    assert "atlas" in ratios
    assert "atlas" not in {row[2] for row in table.rows if row[0] == "sharegpt"}


def test_clairvoyant_limit_is_no_rival() -> None:
    headline = EXPERIMENT.headline(_found(15.0))
    assert not headline.rival
    assert {score.shown for score in headline.scores} == {"2.00", "1.25"}
