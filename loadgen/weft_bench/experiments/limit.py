"""The limit: how far each order is from one that knows what every program still needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_bench.experiments.agentix_single import LOADS, QUICK_SEEDS, SEEDS
from weft_bench.experiments.cells import Cell, Estimate, Measured, Setting, cells
from weft_bench.experiments.experiment import Experiment, Table
from weft_bench.experiments.headline import Headline, less
from weft_bench.experiments.simulating import EIGHTH, measure, systems

_LIMIT: Final = "srpt"
_OURS: Final = "weft"
# Each order on the same engine: prefix cache, swap, no tags. weft has these too, as it is run.
_ORDERS: Final[dict[str, dict[str, Setting]]] = {
    "fcfs": {"system": "vllm-opt"},
    "program_fifo": {"system": "plas", "order": "program_fifo"},
    "vtc": {"system": "plas", "order": "vtc"},
    "mlfq": {"system": "mlfq"},
    "plas": {"system": "plas"},
    "atlas": {"system": "atlas"},
    _OURS: {"system": _OURS},
    _LIMIT: {"system": "plas", "order": _LIMIT},
}
# The second heaviest load of Figure 12: first come, first served no longer keeps up there.
_PICK: Final = -2
# One load only, so that more can be had where seeds differ most.
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


def _order(found: Measured, name: str) -> Measured:
    return found.like(_ORDERS[name], ("system", "order"))


def _tables(found: Measured) -> Sequence[Table]:
    tables = []
    for workload in found.levels("workload"):
        at = found.where(workload=workload)
        limit = _order(at, _LIMIT)
        rows = []
        for name in _ORDERS:
            one = _order(at, name)
            if one:
                rows.append(
                    (
                        name,
                        str(one.estimate("latency")),
                        str(one.ratio("latency", limit)),
                        str(one.estimate("steady_latency")),
                        str(one.ratio("steady_latency", limit)),
                        str(one.estimate("loaded")),
                        str(one.estimate("latency_p95")),
                        str(one.ratio("latency_p95", limit)),
                        str(one.estimate("hit_rate")),
                    )
                )
        columns = (
            "order",
            "latency, s",
            "over srpt's",
            "middle half, s",
            "over srpt's",
            "ended under load",
            "p95, s",
            "over srpt's",
            "hit rate",
        )
        title = (
            f"{workload}: program latency, {at.levels('programs')[0]} programs, "
            f"{at.levels('rate')[0]} a second; also of those that came in the middle half of the "
            "arrivals, of which a share ended before the last arrival"
        )
        tables.append(Table(title, columns, rows))
    return tables


def _findings(found: Measured) -> Sequence[str]:
    said = []
    for workload in found.levels("workload"):
        at = found.where(workload=workload)
        limit = _order(at, _LIMIT)
        ratios: dict[str, Estimate] = {
            name: _order(at, name).ratio("latency", limit)
            for name in _ORDERS
            if name != _LIMIT and _order(at, name)
        }
        nearest = min(ratios, key=lambda name: ratios[name].middle)
        said.append(
            f"{workload}: weft {ratios[_OURS]} times the latency of srpt "
            f"({_order(at, _OURS).ratio('steady_latency', limit)} in the middle half); nearest is "
            f"{nearest} with {ratios[nearest]}"
        )
        if ratios[nearest].below(1):
            said.append(
                f"{workload}: {nearest} is faster than srpt, which knows the work that is left and "
                f"not what is cached (hit rates {_order(at, nearest).estimate('hit_rate')} and "
                f"{limit.estimate('hit_rate')}): srpt is no limit there"
            )
    return said


def _headline(found: Measured) -> Headline:
    scores = []
    for workload in found.levels("workload"):
        at = found.where(workload=workload)
        ratio = _order(at, _OURS).ratio("latency", _order(at, _LIMIT))
        scores.append(less(str(workload), ratio))
    what = "mean program latency over that of srpt, which knows what is left; less is better"
    return Headline(what, scores, "above 1; no number", rival=False)


EXPERIMENT: Final = Experiment(
    name="limit",
    title="Each order beside clairvoyant shortest remaining program first",
    source="Agentix, appendix A.2, Figure 20",
    published="Agentix stands between the other orders and SRPT, with a visible gap to SRPT, where "
    "only scheduling is simulated and all steps are alike; the figure has no numbers",
    cells=_cells,
    measure=measure,
    tables=_tables,
    findings=_findings,
    headline=_headline,
)
