"""Agentix on one engine: mean and tail program token latency against load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

from weft_bench.studies.cells import Cell, Measured, cells
from weft_bench.studies.curves import Throughput, doubled, throughput_ratio
from weft_bench.studies.experiment import Claim, Experiment, Headline, Plot, Table
from weft_bench.studies.show import Shown, across, each, hit_rates, lines, table
from weft_bench.studies.simulating import EIGHTH, UNTOLD, agentix, measure, systems

# Workload to programs and rates, programs a second, from light load to beyond the capacity of
# vllm-opt.
LOADS: Final[Mapping[str, tuple[int, Sequence[float]]]] = {
    "sharegpt": (240, (0.05, 0.1, 0.2, 0.4, 0.8)),
    "bfcl": (120, (0.04, 0.1, 0.2, 0.28, 0.36)),
    "lats": (36, (0.02, 0.06, 0.12, 0.2, 0.3)),
    "mixed": (75, (0.03, 0.08, 0.15, 0.25, 0.4)),
}
# More seeds where a few long programs determine a seed's mean. Programs of many threads cost more
# time and vary less.
SEEDS: Final[Mapping[str, int]] = {"sharegpt": 4, "bfcl": 4, "lats": 3, "mixed": 3}
QUICK_SEEDS: Final = 3
_QUICK: Final[Mapping[str, tuple[int, Sequence[float]]]] = {"sharegpt": (70, (0.05, 0.3, 1.0))}
_BASELINE: Final = "vllm-opt"
_OURS: Final = "weft"
# Section 6.3: the highest published ratio of throughput at equal mean token latency.
_PUBLISHED: Final[Mapping[str, Mapping[str, str]]] = {
    "sharegpt": {"vllm": "8", "vllm-opt": "2", "mlfq": "1.5"},
    "bfcl": {"vllm": "8", "vllm-opt": "2", "mlfq": "1.5"},
    "lats": {"vllm": "5", "vllm-opt": "2", "mlfq": "2.5"},
    "mixed": {"vllm": "15", "vllm-opt": "5", "mlfq": "5.5"},
}
# Section 6.3: the highest published ratio of throughput at equal P95 or P99.
_PUBLISHED_TAILS: Final = "1.7"
# Systems of the claims; the paper's vllm has no prefix cache.
_RIVALS: Final = ("vllm-opt", "mlfq")
# Figures of the cells by their labels in tables.
_MEAN: Final = {"mean": "token_latency"}
_TAILS: Final = {"P95": "token_latency_p95", "P99": "token_latency_p99"}
# The middle half excludes ramp-up and drain.
_MORE: Final = {"mean, middle half": "steady_token_latency", "mean program latency": "latency"}


def load_cells(quick: bool) -> Sequence[Cell]:
    """Return the cells that all figures of one engine share."""
    return [
        cell
        for workload, (programs, rates) in (_QUICK if quick else LOADS).items()
        for rate in rates
        for system in systems(workload)
        for cell in cells(
            QUICK_SEEDS if quick else SEEDS[workload],
            system=system,
            workload=workload,
            programs=programs,
            rate=rate,
            **EIGHTH,
        )
    ]


def _throughput(group: Measured, ours: str, other: Measured, figure: str) -> Throughput:
    """Return the throughput ratio of two systems.

    The latency is twice that of vllm-opt at the lightest load. group: the cells of one workload.
    """
    level = doubled(group.where(system=_BASELINE), figure)
    return throughput_ratio(group.where(system=ours), other, level, figure)


def _bears(ours: str, figure: str) -> Shown:
    """Return a column with the `_throughput` ratio of a system to the row's system.

    ours: "" for Agentix itself: atlas for workloads with parallel threads, plas for the others.
    """

    def shown(other: Measured, group: Measured) -> Throughput:
        name = ours or agentix(str(group.only("workload")))
        return _throughput(group, name, other, figure)

    return shown


def _tables(found: Measured, figures: Mapping[str, str], published: bool) -> Sequence[Table]:
    columns: dict[str, Shown] = {
        f"{ours or 'plas or atlas'}, {label}": _bears(ours, figure)
        for label, figure in {**figures, **(_MORE if published else {})}.items()
        for ours in ("", _OURS, UNTOLD)
    }
    if published:
        columns["published, up to"] = lambda one, group: _PUBLISHED[str(one.only("workload"))].get(
            str(one.only("system")), "-"
        )
    title = (
        "throughput over that of another system at equal latency, which is twice that of vllm-opt "
        "at the lightest load; atlas for lats and mixed"
    )
    tables = [
        table(
            found,
            title,
            {"workload": "workload", "over": "system"},
            columns,
            lambda one: one.only("system") not in (_OURS, UNTOLD),
        )
    ]
    for workload, at in each(found, "workload"):
        for label, figure in figures.items():
            title = f"{workload}: {label} of program token latency, s/token; "
            title += f"{at.only('programs')} programs"
            tables.append(across(at, title, "system", "rate", "programs/s", figure))
    return tables


def _plots(found: Measured, figures: Mapping[str, str]) -> Sequence[Plot]:
    return [
        Plot(
            "programs/s",
            f"{label}, s/token",
            [
                (workload, lines(at, "rate", "system", figure))
                for workload, at in each(found, "workload")
            ],
            log_y=True,
        )
        for label, figure in figures.items()
        if found
    ]


def _headline(found: Measured, label: str, figure: str, published: str) -> Headline:
    """Compare Weft with vllm-opt, with and without reported program ends."""
    scores = [
        _throughput(at, ours, at.where(system=_BASELINE), figure).score(workload + suffix)
        for workload, at in each(found, "workload")
        for ours, suffix in ((_OURS, ""), (UNTOLD, ", without program ends"))
    ]
    what = f"load over that of vllm-opt at equal token latency, {label}; more is better"
    return Headline(what, scores, published)


def _claims(found: Measured, figures: Mapping[str, str]) -> Sequence[Claim]:
    """Compare Agentix's own order with its rivals, without Weft."""
    claims = []
    for workload, at in each(found, "workload"):
        name = agentix(workload)
        heaviest = at.where(rate=at.levels("rate")[-1])
        for (label, figure), rival in product(figures.items(), _RIVALS):
            tail = figure in _TAILS.values()
            published = _PUBLISHED_TAILS if tail else _PUBLISHED[workload][rival]
            subject = f"{workload}: load at equal {label} token latency, {name}"
            score = _throughput(at, name, at.where(system=rival), figure).score("")
            rates = hit_rates(heaviest, name, rival)
            claims.append(
                Claim(subject, rival, score, f"up to {published}", float(published), rates)
            )
    return claims


FIGURE_12: Final = Experiment(
    name="agentix-12",
    title="Program token latency against load, one engine",
    source="Agentix, section 6.3, Figure 12",
    published="throughput at the same token latency up to 8 times vLLM's, twice vLLM-opt's and 1.5 "
    "times MLFQ's on ShareGPT and BFCL; 5, 2 and 2.5 times on LATS; 15, 5 and 5.5 times on Mixed; "
    "overall 4 to 15 times vLLM's (8B on an A100)",
    cells=load_cells,
    measure=measure,
    tables=lambda found: _tables(found, _MEAN, published=True),
    plots=lambda found: _plots(found, _MEAN),
    headline=lambda found: _headline(found, "mean", "token_latency", "up to 2; mixed up to 5"),
    claims=lambda found: _claims(found, _MEAN),
)
FIGURE_13: Final = Experiment(
    name="agentix-13",
    title="Tails of program token latency against load, one engine",
    source="Agentix, section 6.3, Figure 13",
    published="tails below MLFQ's and vLLM-opt's in 7 of 8 cases, throughput up to 1.7 times "
    "theirs at the same P95 or P99",
    cells=load_cells,
    measure=measure,
    tables=lambda found: _tables(found, _TAILS, published=False),
    plots=lambda found: _plots(found, _TAILS),
    headline=lambda found: _headline(found, "P95", "token_latency_p95", "up to 1.7, MLFQ too"),
    claims=lambda found: _claims(found, _TAILS),
)
