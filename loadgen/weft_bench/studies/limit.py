"""Distance of each order from clairvoyant orders that know every program's remaining work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_bench.studies.agentix_single import LOADS, QUICK_SEEDS, SEEDS
from weft_bench.studies.cells import Cell, Measured, Setting, cells
from weft_bench.studies.experiment import Experiment, Headline, Table, less
from weft_bench.studies.show import each, mean, over, table
from weft_bench.studies.simulating import EIGHTH, measure, systems

# Each order on the same engine: prefix cache, swap, no tags. weft also has tags, as in production.
_ORDERS: Final[dict[str, dict[str, Setting]]] = {
    "fcfs": {"system": "vllm-opt"},
    "program_fifo": {"system": "plas", "order": "program_fifo"},
    "vtc": {"system": "plas", "order": "vtc"},
    "mlfq": {"system": "mlfq"},
    "plas": {"system": "plas"},
    "atlas": {"system": "atlas"},
    "weft": {"system": "weft"},
    "srpt": {"system": "plas", "order": "srpt"},
    "resident_srpt": {"system": "weft", "order": "resident_srpt"},
}
_LIMITS: Final = ("srpt", "resident_srpt")
# The second heaviest load of Figure 12, at which first come, first served no longer keeps up.
_PICK: Final = -2
# One load only, to afford more seeds where they differ most.
_SEEDS: Final = {**SEEDS, "sharegpt": 6, "bfcl": 6}


def _cells(quick: bool) -> Sequence[Cell]:
    loads = {name: (programs, rates[_PICK]) for name, (programs, rates) in LOADS.items()}
    if quick:
        loads = {"sharegpt": (60, 0.6)}
    return [
        cell
        for workload, (programs, rate) in loads.items()
        for order, settings in _ORDERS.items()
        if order != "atlas" or order in systems(workload)
        for cell in cells(
            QUICK_SEEDS if quick else _SEEDS[workload],
            workload=workload,
            programs=programs,
            rate=rate,
            **EIGHTH,
            **settings,
        )
    ]


def _tables(found: Measured) -> Sequence[Table]:
    figures = {"latency": "latency", "middle half": "steady_latency", "p95": "latency_p95"}
    columns = {}
    for label, figure in figures.items():
        columns[f"{label}, s"] = mean(figure)
        for limit in _LIMITS:
            columns[f"{label} over {limit}'s"] = over(figure, order=limit)
    columns |= {"ended under load": mean("loaded"), "hit rate": mean("hit_rate")}
    title = (
        "program latency, also of programs that arrived in the middle half of the arrivals; of "
        "those, the share that ended before the last arrival"
    )
    down = {"workload": "workload", "programs/s": "rate", "order": "order"}
    return [table(found.named("order", _ORDERS), title, down, columns)]


def _headline(found: Measured) -> Headline:
    scores = [
        less(
            f"{workload} ({limit})", at.where(order="weft").ratio("latency", at.where(order=limit))
        )
        for workload, at in each(found.named("order", _ORDERS), "workload")
        for limit in _LIMITS
    ]
    what = "mean program latency over that of orders that know the remaining work; less is better"
    return Headline(what, scores, "above 1; no number", rival=False)


EXPERIMENT: Final = Experiment(
    name="limit",
    title="Each order against clairvoyant shortest remaining program first",
    source="Agentix, appendix A.2, Figure 20",
    published="Agentix is between the other orders and SRPT, with a visible gap to SRPT, in a "
    "simulation of scheduling alone with equal steps; the figure has no numbers",
    cells=_cells,
    measure=measure,
    tables=_tables,
    notes=(
        "an order below 1 is faster than srpt, which knows the remaining work but not the cache: "
        "srpt is no limit there. resident_srpt also admits programs to the cache, as weft does",
    ),
    headline=_headline,
)
