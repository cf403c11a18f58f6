"""Agentix offline: all programs at once, and when the last of them ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_bench.experiments.cells import Cell, Measured, cells
from weft_bench.experiments.experiment import Experiment, Plot, Series, Table
from weft_bench.experiments.headline import Headline, less
from weft_bench.experiments.simulating import EIGHTH, UNTOLD, measure, systems

_WORKLOAD: Final = "sharegpt"
_BATCHES: Final = (60, 125, 250, 500)
_QUICK: Final = (30, 100)
_SEEDS: Final = 3
_OURS: Final = "weft"
_RIVAL: Final = "mlfq"


def _cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for programs in (_QUICK if quick else _BATCHES)
        for system in systems(_WORKLOAD)
        if system != UNTOLD
        for cell in cells(
            3 if quick else _SEEDS,
            system=system,
            workload=_WORKLOAD,
            programs=programs,
            rate=0.0,
            **EIGHTH,
        )
    ]


def _tables(found: Measured) -> Sequence[Table]:
    rows = []
    for programs in found.levels("programs"):
        at = found.where(programs=programs)
        for system in at.levels("system"):
            one = at.where(system=system)
            rows.append(
                (
                    str(programs),
                    str(system),
                    str(one.estimate("makespan")),
                    str(at.where(system=_OURS).ratio("makespan", one)),
                    str(one.estimate("latency")),
                    str(one.estimate("hit_rate")),
                    str(one.estimate("preemptions")),
                )
            )
    columns = (
        "programs",
        "system",
        "makespan, s",
        "weft's over it",
        "mean program latency, s",
        "hit rate",
        "preemptions a call",
    )
    return [Table("sharegpt, all programs at once", columns, rows, labels=2)] if rows else []


def _plots(found: Measured) -> Sequence[Plot]:
    batches = found.levels("programs")
    lines = [
        Series(
            str(system),
            [float(programs) for programs in batches],
            [
                found.where(system=system, programs=programs).estimate("makespan")
                for programs in batches
            ],
        )
        for system in found.levels("system")
    ]
    return [Plot("programs", "makespan, s", [("sharegpt", lines)])] if lines else []


def _findings(found: Measured) -> Sequence[str]:
    said = []
    for programs in found.levels("programs"):
        at = found.where(programs=programs)
        ratios = [
            f"{system} {at.where(system=_OURS).ratio('makespan', at.where(system=system))}"
            for system in at.levels("system")
            if system != _OURS
        ]
        said.append(f"{programs} programs: weft's makespan over {', '.join(ratios)}")
    return said


def _headline(found: Measured) -> Headline:
    scores = []
    for programs in found.levels("programs"):
        at = found.where(programs=programs)
        ratio = at.where(system=_OURS).ratio("makespan", at.where(system=_RIVAL))
        scores.append(less(f"{programs} programs", ratio))
    return Headline("makespan over mlfq's; less is better", scores, "0.6 to 0.9 of all others'")


FIGURE_16: Final = Experiment(
    name="agentix-16",
    title="Makespan of a batch of programs",
    source="Agentix, section 6.5, Figure 16",
    published="makespan 10 to 40% below the others'; with 4,000 programs MLFQ runs out of memory, "
    "of which a simulator has no notion",
    cells=_cells,
    measure=measure,
    tables=_tables,
    plots=_plots,
    findings=_findings,
    headline=_headline,
)
