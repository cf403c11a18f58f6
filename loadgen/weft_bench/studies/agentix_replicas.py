"""Agentix on several engines: a comparison of balancers, and scaling with replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import log
from typing import Final

from weft_bench.studies.cells import Cell, Estimate, Measured, cells, estimate, geometric
from weft_bench.studies.curves import bound_of, bounded_load, curves, risen, throughput_ratio
from weft_bench.studies.experiment import Experiment, Headline, Plot, Series, Table, more
from weft_bench.studies.show import Shown, each, lines, mean, table, under
from weft_bench.studies.simulating import EIGHTH, measure

_BALANCERS: Final = ("round_robin", "least_used", "prefix_tree", "locality")
_OURS: Final = "locality"
_FIGURES: Final[Mapping[str, str]] = {
    "mean": "token_latency",
    "P95": "token_latency_p95",
    "P99": "token_latency_p99",
}
# The KV blocks of an eighth of an A100, and few slots. Enough programs to fill 32 slots on each
# replica take an hour to simulate.
_ENGINE: Final = {**EIGHTH, "slots": 8}
# Workload, preset, replicas, programs, and rates of programs a second.
_SCENES: Final = (
    ("sharegpt", "8b-a100", 4, 280, (0.4, 1.2, 3.0)),
    ("sharegpt", "70b-a100", 2, 140, (0.1, 0.3, 0.8)),
    ("lats", "8b-a100", 4, 28, (0.08, 0.25, 0.6)),
    ("lats", "70b-a100", 2, 14, (0.02, 0.06, 0.15)),
)
_QUICK: Final = (("sharegpt", "8b-a100", 2, 80, (0.2, 1.5)),)


def _balancer_cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for workload, preset, replicas, programs, rates in (_QUICK if quick else _SCENES)
        for rate in rates
        for balancer in _BALANCERS
        for cell in cells(
            3,
            system="weft",
            workload=workload,
            preset=preset,
            replicas=replicas,
            programs=programs,
            rate=rate,
            balancer=balancer,
            **_ENGINE,
        )
    ]


def _scenes(found: Measured) -> Iterator[tuple[str, Measured]]:
    """Yield each scene as text, with its cells."""
    for _, at in each(found, "workload", "preset"):
        yield f"{at.only('workload')}, {at.only('replicas')} x {at.only('preset')}", at


def _balancer_tables(found: Measured) -> Sequence[Table]:
    def bears(figure: str) -> Shown:
        return lambda other, group: throughput_ratio(
            group.where(balancer=_OURS), other, risen(other, figure), figure
        )

    title = (
        "locality's throughput over that of another balancer at equal latency. The latency is "
        "twice the other's at the lightest load. If it never rises that far, it is the geometric "
        "mean of its least and greatest; 8 slots a replica, all with weft's order"
    )
    tables = [
        table(
            found,
            title,
            {"workload": "workload", "engine": "preset", "over": "balancer"},
            {label: bears(figure) for label, figure in _FIGURES.items()},
            lambda one: one.only("balancer") != _OURS,
        )
    ]
    columns = {
        **{f"{label}, s/token": mean(figure) for label, figure in _FIGURES.items()},
        "locality's mean / its": under("token_latency", balancer=_OURS),
        "hit rate": mean("hit_rate"),
        "migrations a call": mean("migrations"),
    }
    for name, at in _scenes(found):
        title = f"{name}: program token latency, {at.only('programs')} programs"
        tables.append(table(at, title, {"programs/s": "rate", "balancer": "balancer"}, columns))
    return tables


def _balancer_plots(found: Measured) -> Sequence[Plot]:
    return [
        Plot(
            "programs/s",
            f"{label}, s/token",
            [(name, lines(at, "rate", "balancer", figure)) for name, at in _scenes(found)],
            log_y=True,
        )
        for label, figure in _FIGURES.items()
        if found
    ]


def _balancer_headline(found: Measured) -> Headline:
    figure = _FIGURES["mean"]
    scores = []
    for name, at in _scenes(found):
        ours, theirs = at.where(balancer=_OURS), at.where(balancer="round_robin")
        scores.append(throughput_ratio(ours, theirs, risen(theirs, figure), figure).score(name))
    what = "load over that of round robin at equal mean token latency; more is better"
    return Headline(what, scores, "up to 1.4")


# Programs for each replica.
_PROGRAMS: Final = 100
_RATES: Final = (0.08, 0.3, 0.6, 1.2)
# As multiples of one replica's mean latency at the lightest load.
_SLOS: Final = (1.1, 1.25, 1.5)


def _scaling_cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for replicas in ((1, 2) if quick else (1, 2, 4, 8))
        for rate in _RATES
        for cell in cells(
            3,
            system="weft",
            workload="sharegpt",
            replicas=replicas,
            programs=replicas * (40 if quick else _PROGRAMS),
            rate=rate * replicas,
            **_ENGINE,
        )
    ]


# Number of replicas to two values: the greatest rate within a latency by seed, programs a second,
# and its bound marks for seeds that meet the latency at every load or at none.
_Rates = Mapping[int, tuple[Mapping[int, float], str]]


def _rates_within(found: Measured) -> dict[float, _Rates]:
    """Return the rates within each SLO."""
    rates: dict[float, _Rates] = {}
    # Seeds have different programs but share one SLO.
    lightest = found.where(replicas=1, rate=_RATES[0]).estimate("token_latency").middle
    for slo in _SLOS if found else ():
        of = {}
        for _, at in each(found, "replicas"):
            loads = {
                seed: bounded_load(slo * lightest, line)
                for seed, line in curves(at, "token_latency").items()
            }
            of[int(at.only("replicas"))] = (
                {seed: load for seed, (load, _) in loads.items()},
                "".join(sorted({bound for _, bound in loads.values()})),
            )
        rates[slo] = of
    return rates


def _share(rates: _Rates, replicas: int) -> Estimate:
    """Return the load of these replicas over that many times one replica's load, seed by seed."""
    one, many = rates[1][0], rates[replicas][0]
    return geometric([log(many[seed] / one[seed] / replicas) for seed in one if seed in many])


def _scaling_tables(found: Measured) -> Sequence[Table]:
    rows = [
        (
            f"{slo} x",
            str(replicas),
            f"{bounds} {estimate(list(loads.values()))}".strip(),
            str(_share(rates, replicas)),
        )
        for slo, rates in _rates_within(found).items()
        for replicas, (loads, bounds) in rates.items()
    ]
    columns = ("SLO", "replicas", "programs/s", "over linear")
    title = (
        "greatest load within an SLO on mean program token latency; the SLO is a multiple of one "
        f"replica's latency at {_RATES[0]} programs/s; sharegpt, 8 slots and {_PROGRAMS} programs "
        "a replica (40 in the quick form)"
    )
    return [Table(title, columns, rows, labels=2)]


def _scaling_plots(found: Measured) -> Sequence[Plot]:
    drawn = [
        Series(
            f"{slo} x",
            [float(replicas) for replicas in rates],
            [estimate(list(loads.values())) for loads, _ in rates.values()],
        )
        for slo, rates in _rates_within(found).items()
    ]
    return [Plot("replicas", "programs/s", [("sharegpt, 8b-a100", drawn)])] if drawn else []


def _scaling_headline(found: Measured) -> Headline:
    scores = [
        replace(
            more(f"SLO {slo} x, {max(at)} replicas", _share(at, max(at))),
            bound=bound_of(at[max(at)][1], at[1][1]),
        )
        for slo, at in _rates_within(found).items()
    ]
    what = "load of many replicas over linear scaling of one; more is better"
    return Headline(what, scores, "1: linear")


FIGURE_14: Final = Experiment(
    name="agentix-14",
    title="Comparison of balancers",
    source="Agentix, section 6.4, Figure 14",
    published="up to 1.4 times the throughput of round robin and least used, and close to Preble's "
    "prefix tree, on 4 replicas of 8B and 2 of 70B",
    cells=_balancer_cells,
    measure=measure,
    tables=_balancer_tables,
    plots=_balancer_plots,
    headline=_balancer_headline,
)
FIGURE_15: Final = Experiment(
    name="agentix-15",
    title="Load within an SLO on more replicas",
    source="Agentix, section 6.4, Figure 15",
    published="the greatest load grows linearly from 1 to 8 replicas",
    cells=_scaling_cells,
    measure=measure,
    tables=_scaling_tables,
    plots=_scaling_plots,
    headline=_scaling_headline,
)
