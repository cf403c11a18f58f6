"""Agentix offline: all programs start at once; the makespan is the end of the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_bench.studies.cells import Cell, Measured, cells
from weft_bench.studies.experiment import Claim, Experiment, Headline, Plot, Table, less
from weft_bench.studies.show import each, hit_rates, lines, mean, table, under
from weft_bench.studies.simulating import EIGHTH, UNTOLD, measure, systems


def _cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for programs in ((30, 100) if quick else (60, 125, 250, 500))
        for system in systems("sharegpt")
        if system != UNTOLD
        for cell in cells(
            3, system=system, workload="sharegpt", programs=programs, rate=0.0, **EIGHTH
        )
    ]


def _tables(found: Measured) -> Sequence[Table]:
    columns = {
        "makespan, s": mean("makespan"),
        "weft's / its": under("makespan", system="weft"),
        "mean program latency, s": mean("latency"),
        "hit rate": mean("hit_rate"),
        "preemptions a call": mean("preemptions"),
    }
    down = {"programs": "programs", "system": "system"}
    return [table(found, "sharegpt, all programs at once", down, columns)]


def _plots(found: Measured) -> Sequence[Plot]:
    drawn = lines(found, "programs", "system", "makespan")
    return [Plot("programs", "makespan, s", [("sharegpt", drawn)])] if found else []


def _headline(found: Measured) -> Headline:
    scores = [
        less(
            f"{programs} programs",
            at.where(system="weft").ratio("makespan", at.where(system="mlfq")),
        )
        for programs, at in each(found, "programs")
    ]
    return Headline("makespan over mlfq's; less is better", scores, "0.6 to 0.9 of all others'")


def _claims(found: Measured) -> Sequence[Claim]:
    return [
        Claim(
            f"sharegpt: makespan of {programs} programs, plas",
            rival,
            less("", at.where(system="plas").ratio("makespan", at.where(system=rival))),
            "0.6 to 0.9",
            0.9,
            hit_rates(at, "plas", rival),
        )
        for programs, at in each(found, "programs")
        for rival in ("vllm-opt", "mlfq")
    ]


FIGURE_16: Final = Experiment(
    name="agentix-16",
    title="Makespan of a batch of programs",
    source="Agentix, section 6.5, Figure 16",
    published="makespan 10 to 40% below the others'; with 4,000 programs MLFQ runs out of memory, "
    "which a simulator cannot show",
    cells=_cells,
    measure=measure,
    tables=_tables,
    plots=_plots,
    headline=_headline,
    claims=_claims,
)
