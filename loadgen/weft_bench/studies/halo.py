"""Placement of operators on workers that load models, against the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from weft_bench.studies.cells import Cell, Estimate, Measured, Values, cells
from weft_bench.studies.experiment import Experiment, Goal, Headline, Table, less
from weft_bench.studies.show import each, mean, pooled, table

if TYPE_CHECKING:
    from weft_bench.planner.placement import Job

_PLACERS: Final = ("round robin", "co-located", "data parallel", "beam", "dynamic", "weft")
_QUERIES: Final = (50, 250, 1000, 2000)
_WORKERS: Final = 2
_SEEDS: Final = 3
# The width of the search was fixed with other seeds.
_FIRST_SEED: Final = 200
# The placements of Halo's Table 4.
_PUBLISHED: Final = ("round robin", "co-located", "data parallel", "beam")
_CODE: Final = (
    "loadgen/weft_bench/planner/placement.py",
    "loadgen/weft_bench/studies/halo.py",
    "loadgen/weft_bench/workflows/jobs.py",
)
# A placement within this share of the optimum counts as optimal.
_OPTIMAL: Final = 1.005


def _job(cell: Cell) -> Job:
    from weft_bench.workflows.jobs import JOBS
    from weft_bench.workloads.streams import stream

    name = cell.text("job")
    return JOBS[name](int(cell.number("queries")), stream(_FIRST_SEED + cell.seed, name))


def measure(cell: Cell) -> Values:
    """Return the finish time of each placement, for the settings `job` and `queries`.

    exact: the least time. proven: 1 if no placement is better. optimal of a placer: 1 if its time
    is within half a percent of it.
    """
    from weft_bench.planner.placement import PLACERS, exact, finish_s

    job = _job(cell)
    places, proven = exact(job.checked(), _WORKERS)
    best = finish_s(job, _WORKERS, places)
    times = {
        name: finish_s(job, _WORKERS, placer(job, _WORKERS)) for name, placer in PLACERS.items()
    }
    return {
        "exact": best,
        "proven": float(proven),
        **times,
        **{f"{name} optimal": float(time <= _OPTIMAL * best) for name, time in times.items()},
        **{f"{name} over optimum": time / best for name, time in times.items()},
    }


def _cells(quick: bool) -> Sequence[Cell]:
    from weft_bench.workflows.jobs import JOBS

    return [
        cell
        for queries in (_QUERIES[:2] if quick else _QUERIES)
        for job in (list(JOBS)[:6] if quick else JOBS)
        for cell in cells(_SEEDS, queries=queries, job=job)
    ]


def _tables(found: Measured) -> Sequence[Table]:
    if not found:
        return []
    rows = []
    for name in _PLACERS:
        row = [name]
        for _, at in each(found, "queries"):
            values = list(at.values.values())
            row += [
                f"{sum(one[name] for one in values) / len(values):.0f}",
                f"{100 * sum(one[f'{name} optimal'] for one in values) / len(values):.0f}",
            ]
        rows.append(tuple(row))
    queries = found.levels("queries")
    heads = [f"{q} queries, {what}" for q in queries for what in ("s", "% optimal")]
    proven = sum(values["proven"] for values in found.values.values())
    title = f"mean finish time and share of optimal placements; {proven:.0f} optima are proven"
    columns = {"optimum, s": mean("exact"), **{n: mean(f"{n} over optimum") for n in _PLACERS}}
    down = {"workflow": "job", "queries": "queries"}
    return [
        Table(title, ("placement", *heads), rows),
        Table(
            "share of jobs in percent for which a placement is the best of the paper's four",
            ("placement", *(f"{one} queries" for one in queries)),
            [
                (name, *(f"{_best(at, name):.0f}" for _, at in each(found, "queries")))
                for name in _PUBLISHED
            ],
        ),
        table(found, "finish time over the optimum's", down, columns),
    ]


def _best(found: Measured, name: str) -> float:
    """Return the percentage of jobs for which no other published placement is better."""
    best = [
        values[name] <= _OPTIMAL * min(values[one] for one in _PUBLISHED)
        for values in found.values.values()
    ]
    return 100 * sum(best) / len(best)


def _headline(found: Measured) -> Headline:
    scores = [
        less(
            f"{queries} queries ({rival})",
            pooled(at, "weft").ratio("weft", _as_weft(pooled(at, rival), rival)),
        )
        for queries, at in each(found, "queries")
        for rival in ("data parallel", "beam", "dynamic")
    ]
    return Headline("finish time over the other placement's; less is better", scores)


def _goals(found: Measured) -> Sequence[Goal]:
    goals = []
    for queries, at in each(found, "queries"):
        best = [values["weft optimal"] for values in at.values.values()]
        share = 100 * sum(best) / len(best)
        text = f"{queries} queries: optimal placements in percent:"
        goals.append(Goal(text, Estimate(share, share, share), 90, less=False))
    return goals


def _as_weft(found: Measured, name: str) -> Measured:
    return Measured({cell: {"weft": values[name]} for cell, values in found.values.items()})


TABLE_4: Final = Experiment(
    name="halo-t4",
    title="Placement of operators over two workers that load models",
    source="Halo (v1), Table 4",
    published="Halo is optimal for all ten workflows, round robin for 20%, co-located for 40% and "
    "data parallel for 30%; 76 to 552 s, 83 to 889, 82 to 873 and 97 to 577 s for 50 to 2,000 "
    "queries",
    cells=_cells,
    measure=measure,
    tables=_tables,
    notes=(
        "finish times of the placement model, not of engines: waiting for inputs counts, rows are "
        "not pipelined between operators, and k workers take 1 / k^0.9 of the time",
        "beam is Halo's search (v1) with the cost of the paper; dynamic is the dynamic "
        "programming of the released v2, without data parallelism",
        "the optimum is over the same choices: one worker or both for each operator, in any order; "
        "a placement within 0.5% of it counts as optimal",
        "placement is a part of the bench; weft run has a simpler one",
    ),
    headline=_headline,
    goals=_goals,
    code=_CODE,
    order="",
    first_seed=_FIRST_SEED,
)


def measure_planning(cell: Cell) -> Values:
    """Return CPU milliseconds of each placement, for the settings `job` and `queries`. limit_ms:
    that a placement must keep.
    """
    from time import process_time

    from weft_bench.planner.placement import PLACERS

    job = _job(cell)
    found = {"limit_ms": 100.0}
    for name, placer in PLACERS.items():
        begun = process_time()
        placer(job, _WORKERS)
        found[f"ms of {name}"] = 1e3 * (process_time() - begun)
    return found


def _time_tables(found: Measured) -> Sequence[Table]:
    columns = {name: mean(f"ms of {name}") for name in ("beam", "dynamic", "weft")}
    return [table(found, "CPU ms of a placement", {"workflow": "job"}, columns)] if found else []


PLANNING: Final = Experiment(
    name="halo-planning",
    title="Time of placing operators",
    source="Halo (v2), the time of its dynamic programming",
    published="2.24 s for the dynamic programming of v2, 1.44 hours for an exact solver",
    cells=lambda quick: [cell for cell in _cells(quick) if cell.number("queries") == _QUERIES[0]],
    measure=measure_planning,
    tables=_time_tables,
    notes=("two workers; the published times are for the paper's graphs and machine",),
    goals=lambda found: [
        Goal(f"{job}: CPU ms", at.estimate("ms of weft"), 100) for job, at in each(found, "job")
    ],
    kind="cpu",
    code=_CODE,
    order="",
    exclusive=True,
    first_seed=_FIRST_SEED,
)
