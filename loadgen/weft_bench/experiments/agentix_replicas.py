"""Agentix on several engines: balancers beside each other, and what more replicas bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Final

from weft_bench.experiments.cells import Cell, Estimate, Measured, cells, estimate, geometric
from weft_bench.experiments.curves import bounded_load, curves, risen, throughput_ratio
from weft_bench.experiments.experiment import Experiment, Plot, Series, Table
from weft_bench.experiments.headline import Headline, more
from weft_bench.experiments.simulating import EIGHTH, measure

_BALANCERS: Final = ("round_robin", "least_used", "prefix_tree", "locality")
_OURS: Final = "locality"
_BASELINE: Final = "round_robin"
_FIGURES: Final[Mapping[str, str]] = {
    "mean": "token_latency",
    "P95": "token_latency_p95",
    "P99": "token_latency_p99",
}
# The KV blocks of an eighth of an A100, and few slots: programs enough to fill 32 of them on each
# replica would take an hour to simulate.
_ENGINE: Final = {**EIGHTH, "slots": 8}
# Of dialogues more, whose lengths vary more and which take less time.
_SEEDS: Final[Mapping[str, int]] = {"sharegpt": 3, "lats": 3}
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
            3 if quick else _SEEDS[workload],
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


def _scenes(found: Measured) -> list[tuple[str, Measured]]:
    """What was played, in words, and its cells."""
    return [
        (f"{workload}, {at.levels('replicas')[0]} x {preset}", at)
        for workload in found.levels("workload")
        for preset in found.where(workload=workload).levels("preset")
        for at in [found.where(workload=workload, preset=preset)]
    ]


def _balancer_tables(found: Measured) -> Sequence[Table]:
    if not found:
        return []
    rows = []
    for name, at in _scenes(found):
        for over in _BALANCERS[:-1]:
            ratios = [
                str(
                    throughput_ratio(
                        at.where(balancer=_OURS),
                        at.where(balancer=over),
                        risen(at.where(balancer=over), figure),
                        figure,
                    )
                )
                for figure in _FIGURES.values()
            ]
            rows.append((name, over, *ratios))
    title = (
        "times the throughput of another balancer that locality bears at equal latency: twice the "
        "other's under the lightest load, or, where that never is so slow, the geometric mean of "
        "its least and greatest; 8 slots a replica, all order as weft does"
    )
    tables = [Table(title, ("scene", "over", *_FIGURES), rows, labels=2)]
    for name, at in _scenes(found):
        rows = [
            (
                str(rate),
                str(balancer),
                *(str(one.estimate(figure)) for figure in _FIGURES.values()),
                str(one.estimate("hit_rate")),
                str(one.estimate("migrations")),
            )
            for rate in at.levels("rate")
            for balancer in _BALANCERS
            for one in [at.where(rate=rate, balancer=balancer)]
        ]
        columns = (
            "programs/s",
            "balancer",
            *(f"{label}, s/token" for label in _FIGURES),
            "hit rate",
            "migrations a call",
        )
        title = f"{name}: program token latency, {at.levels('programs')[0]} programs"
        tables.append(Table(title, columns, rows, labels=2))
    return tables


def _balancer_plots(found: Measured) -> Sequence[Plot]:
    return [
        Plot(
            "programs/s",
            f"{label}, s/token",
            [
                (
                    name,
                    [
                        Series(
                            balancer,
                            [float(rate) for rate in at.levels("rate")],
                            [
                                at.where(balancer=balancer, rate=rate).estimate(figure)
                                for rate in at.levels("rate")
                            ],
                        )
                        for balancer in _BALANCERS
                    ],
                )
                for name, at in _scenes(found)
            ],
            log_y=True,
        )
        for label, figure in _FIGURES.items()
        if found
    ]


def _balancer_findings(found: Measured) -> Sequence[str]:
    said = []
    for name, at in _scenes(found):
        heavy = at.where(rate=at.levels("rate")[-1])
        ours = heavy.where(balancer=_OURS)
        ratios = [
            f"{over} {ours.ratio('token_latency', heavy.where(balancer=over))}"
            for over in _BALANCERS[:-1]
        ]
        said.append(f"{name}, heaviest load: locality's mean latency over {', '.join(ratios)}")
    return said


_REPLICAS: Final = (1, 2, 4, 8)
# For each replica.
_PROGRAMS: Final = 100
_RATES: Final = (0.08, 0.3, 0.6, 1.2)
# In the mean latency of one replica under the lightest load.
_SLOS: Final = (1.1, 1.25, 1.5)


def _scaling_cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for replicas in ((1, 2) if quick else _REPLICAS)
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


def _rates_within(found: Measured, slo: float) -> dict[int, tuple[dict[int, float], str]]:
    """By replicas: the greatest rate within a latency by seed, programs a second; and of which
    bounds it is made, where a seed was within it under every load, or under none."""
    # Seeds have other programs, but one promise to keep.
    lightest = found.where(replicas=1, rate=_RATES[0]).estimate("token_latency").middle
    rates = {}
    for replicas in found.levels("replicas"):
        lines = curves(found.where(replicas=replicas), "token_latency")
        loads = {seed: bounded_load(slo * lightest, line) for seed, line in lines.items()}
        rates[int(replicas)] = (
            {seed: load for seed, (load, _) in loads.items()},
            "".join(sorted({bound for _, bound in loads.values()})),
        )
    return rates


def _share(rates: Mapping[int, tuple[Mapping[int, float], str]], replicas: int) -> Estimate:
    """What these replicas bear over as many times what one bears, seed by seed."""
    one, many = rates[1][0], rates[replicas][0]
    return geometric([log(many[seed] / one[seed] / replicas) for seed in one if seed in many])


def _scaling_tables(found: Measured) -> Sequence[Table]:
    rows = []
    for slo in _SLOS if found else ():
        rates = _rates_within(found, slo)
        for replicas, (loads, bounds) in rates.items():
            rate = estimate(list(loads.values()))
            rows.append(
                (
                    f"{slo} x",
                    str(replicas),
                    f"{bounds} {rate}".strip(),
                    str(_share(rates, replicas)),
                )
            )
    columns = ("SLO", "replicas", "programs/s", "over replicas times one's")
    title = (
        "greatest load within an SLO on mean program token latency, in what one replica has under "
        f"{_RATES[0]} programs/s; sharegpt, 8 slots and {_PROGRAMS} programs a replica (40 in the "
        "quick form)"
    )
    return [Table(title, columns, rows, labels=2)] if rows else []


def _scaling_plots(found: Measured) -> Sequence[Plot]:
    if not found:
        return []
    lines = [
        Series(
            f"{slo} x",
            [float(replicas) for replicas in rates],
            [estimate(list(loads.values())) for loads, _ in rates.values()],
        )
        for slo in _SLOS
        for rates in [_rates_within(found, slo)]
    ]
    return [Plot("replicas", "programs/s", [("sharegpt, 8b-a100", lines)])]


def _scaling_findings(found: Measured) -> Sequence[str]:
    said = []
    for slo in _SLOS if found else ():
        rates = _rates_within(found, slo)
        most = max(rates)
        said.append(
            f"within {slo} times the lightest latency, {most} replicas bear {_share(rates, most)} "
            f"of {most} times what one bears"
        )
    return said


def _balancer_headline(found: Measured) -> Headline:
    figure = _FIGURES["mean"]
    scores = []
    for name, at in _scenes(found):
        level = risen(at.where(balancer=_BASELINE), figure)
        ours, theirs = at.where(balancer=_OURS), at.where(balancer=_BASELINE)
        scores.append(throughput_ratio(ours, theirs, level, figure).score(name))
    what = "times the load of round robin at equal mean token latency; more is better"
    return Headline(what, scores, "up to 1.4")


def _scaling_headline(found: Measured) -> Headline:
    rates = {slo: _rates_within(found, slo) for slo in _SLOS} if found else {}
    scores = [
        more(f"SLO {slo} x, {max(at)} replicas", _share(at, max(at))) for slo, at in rates.items()
    ]
    what = "load of many replicas over as many times one's; 1 is linear, more is better"
    return Headline(what, scores, "1: linear")


FIGURE_14: Final = Experiment(
    name="agentix-14",
    title="Balancers beside each other",
    source="Agentix, section 6.4, Figure 14",
    published="up to 1.4 times the throughput of round robin and least used, and close to Preble's "
    "prefix tree, on 4 replicas of 8B and 2 of 70B",
    cells=_balancer_cells,
    measure=measure,
    tables=_balancer_tables,
    plots=_balancer_plots,
    findings=_balancer_findings,
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
    findings=_scaling_findings,
    headline=_scaling_headline,
)
