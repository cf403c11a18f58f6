"""The limit: how far each order is from one that knows what every program still needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loadgen.experiments.cells import Cell, Measured, cells
from loadgen.experiments.experiment import Experiment, Table
from loadgen.experiments.simulating import measure

_LIMIT: Final = "srpt"
_ORDERS: Final = ("fcfs", "program_fifo", "mlfq", "plas", "atlas", "vtc", _LIMIT)
# Workload to (programs, rate): near the load at which first come, first served stops keeping up.
_LOADS: Final = {"sharegpt": (300, 4.0), "bfcl": (300, 6.0), "lats": (40, 0.3), "mixed": (90, 0.9)}


def _cells(quick: bool) -> Sequence[Cell]:
    loads = {"bfcl": (60, 6.0)} if quick else _LOADS
    return [
        cell
        for workload, (programs, rate) in loads.items()
        for order in _ORDERS
        for cell in cells(
            3, system="weft", workload=workload, programs=programs, rate=rate, order=order
        )
    ]


def _tables(found: Measured) -> Sequence[Table]:
    rows = []
    for workload in found.levels("workload"):
        at = found.where(workload=workload)
        limit = at.where(order=_LIMIT)
        for order in at.levels("order"):
            one = at.where(order=order)
            rows.append(
                (
                    str(workload),
                    str(order),
                    str(one.estimate("latency")),
                    str(one.ratio("latency", limit)),
                    str(one.estimate("latency_p95")),
                    str(one.ratio("latency_p95", limit)),
                )
            )
    columns = ("workload", "order", "latency, s", "over srpt", "p95, s", "p95 over srpt")
    return [Table("program latency beside the clairvoyant order", columns, rows, labels=2)]


EXPERIMENT: Final = Experiment(
    name="limit",
    title="Each order beside clairvoyant shortest remaining program first",
    source="Agentix, appendix A.2, Figure 20",
    published="Agentix stands between the other orders and SRPT, with a visible gap to SRPT; "
    "the figure has no numbers",
    cells=_cells,
    measure=measure,
    tables=_tables,
)
