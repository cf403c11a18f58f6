"""Agentix on one engine: program token latency against load, its mean and its tails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from weft_bench.experiments.cells import Cell, Measured, cells
from weft_bench.experiments.curves import Throughput, doubled, throughput_ratio
from weft_bench.experiments.experiment import Experiment, Plot, Series, Table
from weft_bench.experiments.headline import Headline
from weft_bench.experiments.simulating import EIGHTH, UNTOLD, agentix, measure, systems

# Workload to programs and rates, programs a second: from light load to beyond what vllm-opt bears.
LOADS: Final[Mapping[str, tuple[int, Sequence[float]]]] = {
    "sharegpt": (240, (0.05, 0.1, 0.2, 0.4, 0.8)),
    "bfcl": (120, (0.04, 0.1, 0.2, 0.28, 0.36)),
    "lats": (36, (0.02, 0.06, 0.12, 0.2, 0.3)),
    "mixed": (75, (0.03, 0.08, 0.15, 0.25, 0.4)),
}
# More where a few long programs decide a seed's mean; programs of many threads cost more time and
# vary less.
SEEDS: Final[Mapping[str, int]] = {"sharegpt": 4, "bfcl": 4, "lats": 3, "mixed": 3}
QUICK_SEEDS: Final = 3
_QUICK: Final[Mapping[str, tuple[int, Sequence[float]]]] = {
    "sharegpt": (70, (0.05, 0.3, 1.0)),
}
_BASELINE: Final = "vllm-opt"
_OURS: Final = "weft"
# Section 6.3: so many times the throughput of each at the same mean token latency, at most.
_PUBLISHED: Final[Mapping[str, Mapping[str, str]]] = {
    "sharegpt": {"vllm": "8", "vllm-opt": "2", "mlfq": "1.5"},
    "bfcl": {"vllm": "8", "vllm-opt": "2", "mlfq": "1.5"},
    "lats": {"vllm": "5", "vllm-opt": "2", "mlfq": "2.5"},
    "mixed": {"vllm": "15", "vllm-opt": "5", "mlfq": "5.5"},
}


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of the cells: its name there, and what it is called in tables."""

    figure: str
    label: str


MEAN: Final = Compared("token_latency", "mean")
P95: Final = Compared("token_latency_p95", "P95")
P99: Final = Compared("token_latency_p99", "P99")
# Neither how the engine fills nor how it drains.
STEADY: Final = Compared("steady_token_latency", "mean, middle half")
JOB: Final = Compared("latency", "mean program latency")


def load_cells(quick: bool) -> Sequence[Cell]:
    """What is measured for all figures of one engine."""
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


def latency_table(found: Measured, workload: str, compared: Compared) -> Table:
    """Systems down, loads across, of the cells of one workload."""
    rates = found.levels("rate")
    rows = [
        (
            str(system),
            *(
                str(found.where(system=system, rate=rate).estimate(compared.figure))
                for rate in rates
            ),
        )
        for system in found.levels("system")
    ]
    programs = found.levels("programs")[0]
    title = f"{workload}: {compared.label} of program token latency, s/token; {programs} programs"
    return Table(title, ("programs/s", *(str(rate) for rate in rates)), rows)


def throughput(found: Measured, ours: str, over: str, compared: Compared) -> Throughput:
    """How much more one system bears than another where the figure is twice what vllm-opt has at
    the lightest load, of the cells of one workload."""
    level = doubled(found.where(system=_BASELINE), compared.figure)
    return throughput_ratio(
        found.where(system=ours), found.where(system=over), level, compared.figure
    )


def _shown(workload: str) -> Sequence[str]:
    """Whose throughput is told."""
    return agentix(workload), _OURS, UNTOLD


def _throughput_table(found: Measured, compared: Sequence[Compared], published: bool) -> Table:
    rows = []
    for workload in map(str, found.levels("workload")):
        at = found.where(workload=workload)
        for over in ("vllm", _BASELINE, "mlfq"):
            row = [workload, over]
            for one in compared:
                row += [str(throughput(at, ours, over, one)) for ours in _shown(workload)]
            rows.append((*row, *([_PUBLISHED[workload][over]] if published else [])))
    columns = ["workload", "over"]
    for one in compared:
        columns += [f"{ours}, {one.label}" for ours in ("plas or atlas", _OURS, UNTOLD)]
    title = (
        "times the throughput of another system at equal latency, which is twice that of vllm-opt "
        "under the lightest load; atlas for lats and mixed"
    )
    return Table(title, (*columns, *(["published, up to"] if published else [])), rows, labels=2)


def _tables(found: Measured, latencies: Sequence[Compared], published: bool) -> Sequence[Table]:
    if not found:
        return []
    tables = [
        latency_table(found.where(workload=workload), str(workload), one)
        for workload in found.levels("workload")
        for one in latencies
    ]
    compared = [*latencies, STEADY, JOB] if published else latencies
    return [_throughput_table(found, compared, published), *tables]


def _plots(found: Measured, latencies: Sequence[Compared]) -> Sequence[Plot]:
    return [
        Plot(
            "programs/s",
            f"{one.label}, s/token",
            [
                (str(workload), _lines(found.where(workload=workload), one))
                for workload in found.levels("workload")
            ],
            log_y=True,
        )
        for one in latencies
        if found
    ]


def _lines(found: Measured, compared: Compared) -> Sequence[Series]:
    rates = found.levels("rate")
    return [
        Series(
            str(system),
            [float(rate) for rate in rates],
            [found.where(system=system, rate=rate).estimate(compared.figure) for rate in rates],
        )
        for system in found.levels("system")
    ]


def findings(found: Measured, compared: Sequence[Compared]) -> list[str]:
    """Sentences for each workload and figure: what weft bears beside each other system, and what
    not being told of ends costs it."""
    said = []
    for workload in map(str, found.levels("workload")):
        at = found.where(workload=workload)
        for one in compared:
            others = []
            for over in at.levels("system"):
                if over not in {_OURS, UNTOLD}:
                    ratio = throughput(at, _OURS, str(over), one)
                    others.append(f"{over} {ratio}{_worse(ratio)}")
            heaviest = at.where(rate=at.levels("rate")[-1])
            untold = heaviest.where(system=UNTOLD)
            cost = untold.ratio(one.figure, heaviest.where(system=_OURS))
            said.append(
                f"{workload}, {one.label}: weft's throughput over {', '.join(others)}; not told "
                "when programs end, its latency under the heaviest load is "
                f"{cost} of that when told"
            )
    return said


def _worse(ratio: Throughput) -> str:
    """What a reader must not overlook."""
    if ratio.bound == "?" or ratio.bound == "≥":
        return ""
    if ratio.ratio.below(1):
        return " (worse)"
    return "" if ratio.ratio.above(1) else " (no difference shown)"


def _headline(found: Measured, compared: Compared, published: str) -> Headline:
    """What ours bears over vllm-opt, told when programs end and not."""
    scores = []
    for workload in map(str, found.levels("workload")):
        at = found.where(workload=workload)
        for ours, name in ((_OURS, workload), (UNTOLD, f"{workload}, ends not told")):
            scores.append(throughput(at, ours, _BASELINE, compared).score(name))
    what = f"times the load of vllm-opt at equal token latency, {compared.label}; more is better"
    return Headline(what, scores, published)


FIGURE_12: Final = Experiment(
    name="agentix-12",
    title="Program token latency against load, one engine",
    source="Agentix, section 6.3, Figure 12",
    published="throughput at the same token latency up to 8 times vLLM's, twice vLLM-opt's and 1.5 "
    "times MLFQ's on ShareGPT and BFCL; 5, 2 and 2.5 on LATS; 15, 5 and 5.5 on Mixed; 4 to 15 "
    "times vLLM's in all (8B on an A100)",
    cells=load_cells,
    measure=measure,
    tables=lambda found: _tables(found, [MEAN], published=True),
    plots=lambda found: _plots(found, [MEAN]),
    findings=lambda found: findings(found, [MEAN]),
    headline=lambda found: _headline(found, MEAN, "up to 2; mixed up to 5"),
)
FIGURE_13: Final = Experiment(
    name="agentix-13",
    title="Tails of program token latency against load, one engine",
    source="Agentix, section 6.3, Figure 13",
    published="tails below MLFQ's and vLLM-opt's in 7 of 8 cases, throughput up to 1.7 times "
    "theirs at the same P95 or P99",
    cells=load_cells,
    measure=measure,
    tables=lambda found: _tables(found, [P95, P99], published=False),
    plots=lambda found: _plots(found, [P95, P99]),
    findings=lambda found: findings(found, [P95, P99]),
    headline=lambda found: _headline(found, P95, "up to 1.7, over MLFQ too"),
)
