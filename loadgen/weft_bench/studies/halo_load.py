"""Halo's workflows under load: queries that arrive one by one, and a batch on many workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final

from weft_bench.studies.cells import Cell, Measured, Values, cells
from weft_bench.studies.experiment import Experiment, Goal, Headline, Table, less, more
from weft_bench.studies.helium import CODE
from weft_bench.studies.show import each, mean, over, pooled, table

_OURS: Final = "weft run"
_BASE: Final = "topological"
_RIVAL: Final = "random"
# Queries per second of two engines that have all queries at once, with a tuning seed.
_CAPACITY: Final[Mapping[str, float]] = {
    "W1 retrieval": 8.8, "W2 critique": 11.8, "W4 vote": 5.9, "W6 dialogue": 6.0,
}  # fmt: skip
_LOADS: Final = (0.5, 1.0, 4.0)
_QUERIES: Final = 128
# Seconds for which a batch collects queries, on engines of an eighth: 4 s on whole ones.
_INTERVAL_S: Final = 0.5
_WORKERS: Final = (1, 4, 16)
# An eighth of the paper's 20,000.
_MANY: Final = 2500
_SEEDS: Final = 3
# Loads and the interval were fixed with other seeds.
_FIRST_SEED: Final = 200
_NOTES: Final = (
    "engines are an eighth of an A100's in slots, cache, tokens and fixed time of a step: times "
    "and numbers of queries are an eighth of those of whole engines, and rates are the same",
    "lengths of prompts and answers are assumed, because the paper publishes none",
    "random is LangGraph: each query is a separate run of the graph, and a call goes to the "
    "engine with the fewest calls as soon as its inputs are there",
    "the most is a rate that no schedule can beat: each different beginning of a prompt is "
    "computed once, all slots are always full, and no call waits for its inputs",
    "weft run is its machine and its plan of rows; the time of the gateway's code is not contained",
)


def measure_load(cell: Cell) -> Values:
    """Return the figures of queries that arrive at random, for the settings `shape`, `load` (share
    of the rate that the engines can serve) and `system`.

    rate: queries per second from the start to the last answer. of_most: over those that no schedule
    can beat if all queries are there. latency_s, p95_s: of queries.
    """
    from weft_bench.stats import percentile
    from weft_bench.workflows.bound import least_seconds
    from weft_bench.workflows.halo_shapes import HALO
    from weft_bench.workflows.systems import SYSTEMS, Scene, engines
    from weft_bench.workloads.streams import poisson_arrivals, stream

    name, system = cell.text("shape"), cell.text("system")
    seed = _FIRST_SEED + cell.seed
    scene = Scene(HALO[name](_QUERIES), engines(), seed)
    rate = _CAPACITY[name] * cell.number("load")
    arrivals = poisson_arrivals(stream(seed, "arrivals"), rate, _QUERIES)
    collected = [_INTERVAL_S * ceil(one / _INTERVAL_S) for one in arrivals]
    begins = collected if system == _BASE else arrivals
    found = scene.run(SYSTEMS[system](scene), begins)
    # A query that is collected has waited before.
    times = [
        begin - arrival + latency
        for arrival, begin, latency in zip(arrivals, begins, found.latencies, strict=True)
    ]
    return {
        "offered": _QUERIES / arrivals[-1],
        "rate": _QUERIES / found.seconds,
        "of_most": least_seconds(scene.tasks, scene.shapes) / found.seconds,
        "latency_s": sum(times) / len(times),
        "p95_s": percentile(times, 0.95),
    }


def _load_cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for shape in (tuple(_CAPACITY)[1:2] if quick else _CAPACITY)
        for load in (_LOADS[:2] if quick else _LOADS)
        for system in (_BASE, _RIVAL, _OURS)
        for cell in cells(_SEEDS, shape=shape, load=load, system=system)
    ]


def _load_tables(found: Measured) -> Sequence[Table]:
    if not found:
        return []
    down = {"workflow": "shape", "load": "load", "system": "system"}
    columns = {
        "offered, queries/s": mean("offered"),
        "served, queries/s": mean("rate"),
        f"over {_BASE}": over("rate", system=_BASE),
        "over the most": mean("of_most"),
        "mean latency, s": mean("latency_s"),
        f"over {_BASE}'s": over("latency_s", system=_BASE),
        "95th percentile, s": mean("p95_s"),
    }
    return [table(found, "queries per second and latency", down, columns)]


def _load_headline(found: Measured) -> Headline:
    scores = []
    for load, at in each(found, "load"):
        ours = pooled(at.where(system=_OURS), "latency_s")
        scores += [
            less(
                f"load {load} ({rival})",
                ours.ratio("latency_s", pooled(at.where(system=rival), "latency_s")),
            )
            for rival in (_BASE, _RIVAL)
        ]
    return Headline("mean latency over the other's, over workflows; less is better", scores)


def _load_goals(found: Measured) -> Sequence[Goal]:
    """Return the goals: three times the rate of vLLM in topological order under the highest load.

    The paper's ratio is that of the greatest rates.
    """
    if not found:
        return []
    most = found.where(load=found.levels("load")[-1])
    return [
        Goal(
            f"{shape}: queries per second over {_BASE}:",
            at.where(system=_OURS).ratio("rate", at.where(system=_BASE)),
            3,
            less=False,
        )
        for shape, at in each(most, "shape")
    ]


FIGURE_8: Final = Experiment(
    name="halo-8",
    title="Queries that arrive one by one, under increasing load",
    source="Halo, Figure 8",
    published="1.2 to 4.7 times the greatest rate of vLLM in topological order (v1), 1.53 to 2.58 "
    "times (v2)",
    cells=_load_cells,
    measure=measure_load,
    tables=_load_tables,
    notes=(
        *_NOTES,
        "topological: vLLM runs the queries that it has collected operator by operator, and then "
        "the next ones. It collects for 0.5 s (4 s on whole engines) and while a batch runs; the "
        "paper publishes no interval",
        "load: offered rate over that of the engines if all queries are there at once. Served: "
        "128 queries over the time to the last answer, so that a low load includes the last "
        "query's latency",
        "W3 and W5 are left out: their workers load two models in turn, and replicas of the "
        "gateway keep one. Halo's ratio contains the loading of models",
    ),
    headline=_load_headline,
    goals=_load_goals,
    code=CODE,
    order="fcfs",
    first_seed=_FIRST_SEED,
)


def measure_workers(cell: Cell) -> Values:
    """Return the time of a large batch, for the settings `workers` and `system`. worker_s: seconds
    times workers.
    """
    from weft_bench.workflows.halo_shapes import HALO
    from weft_bench.workflows.systems import SYSTEMS, Scene, engines

    workers = int(cell.number("workers"))
    scene = Scene(HALO["W2 critique"](_MANY), engines(replicas=workers), _FIRST_SEED + cell.seed)
    found = scene.run(SYSTEMS[cell.text("system")](scene))
    return {
        "seconds": found.seconds,
        "worker_s": workers * found.seconds,
        "hit_rate": found.hit_rate,
    }


def _worker_cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for system, counts in ((_RIVAL, _WORKERS[-1:]), (_OURS, _WORKERS))
        for workers in (_WORKERS[-1:] if quick else counts)
        for cell in cells(_SEEDS, system=system, workers=workers)
    ]


def _worker_tables(found: Measured) -> Sequence[Table]:
    if not found:
        return []
    ours = found.where(system=_OURS)
    alone = ours.where(workers=ours.levels("workers")[0])
    rows = [
        (
            system,
            str(workers),
            str(one.estimate("seconds")),
            str(alone.ratio("worker_s", one)),
            str(one.estimate("hit_rate")),
        )
        for system, at in each(found, "system")
        for workers in at.levels("workers")
        for one in (at.where(workers=workers),)
    ]
    heads = ("system", "workers", "s", "share of linear", "hit rate")
    return [Table("time of a batch of 2,500 queries", heads, rows, labels=2)]


def _worker_headline(found: Measured) -> Headline:
    scores = [
        more(
            f"{workers} workers",
            found.where(system=_RIVAL, workers=workers).ratio("seconds", ours),
        )
        for workers in found.where(system=_RIVAL).levels("workers")
        for ours in (found.where(system=_OURS, workers=workers),)
    ]
    return Headline("rate over that of random; more is better", scores)


def _worker_goals(found: Measured) -> Sequence[Goal]:
    if not found:
        return []
    ours = found.where(system=_OURS)
    least, *others = ours.levels("workers")
    return [
        Goal(
            f"{workers} workers: share of linear:",
            ours.where(workers=least).ratio("worker_s", ours.where(workers=workers)),
            0.9,
            less=False,
        )
        for workers in others
    ]


FIGURE_9: Final = Experiment(
    name="halo-9",
    title="A large batch on 1 to 16 workers",
    source="Halo, Figure 9 (a) and (d)",
    published="nearly linear up to 16 GPUs, for W4; batches of 2,000 to 20,000 "
    "queries take less than half of LMCache's time",
    cells=_worker_cells,
    measure=measure_workers,
    tables=_worker_tables,
    notes=(
        *_NOTES,
        "W2, with 2,500 queries: 20,000 on whole engines. The paper scales workers with W4 and "
        "batches with W5, which take longer to simulate",
        "share of linear: the rate over that of one worker with weft run times the workers",
    ),
    headline=_worker_headline,
    goals=_worker_goals,
    code=CODE,
    order="fcfs",
    first_seed=_FIRST_SEED,
)
