"""Batches of workflows under the systems of Helium's evaluation, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Final

from weft_bench.studies.cells import Cell, Estimate, Measured, Values, cells
from weft_bench.studies.experiment import SIMULATION, Experiment, Goal, Headline, Table, less
from weft_bench.studies.show import each, mean, over, pooled, table

_OURS: Final = "weft"
_RUN: Final = "weft run"
# Helium's rows divided by the scale of the engines. The trading workflow has Figure 7's largest
# batch; TAT-QA has fewer rows than the paper's 600 and 1,200, to keep the runs short.
_ROWS: Final[Mapping[str, int]] = {
    "map-reduce": 25,
    "map-reduce-context": 72,
    "debate": 25,
    "debate-context": 72,
    "reflect": 72,
    "iterative": 25,
    "parallel": 13,
    "trading": 10,
}
_SYSTEMS: Final = ("operator-wise", "random", "parrot", "kvflow", "helium", _OURS)
# Only the order and the placement: nothing is sent ahead.
_SCHEDULES: Final = (
    "query-wise", "operator-wise", "random", "longest prefix", "helium, schedule only",
    "weft, schedule only",
)  # fmt: skip
_PARTS: Final = (
    _OURS, "even slices", "no rows", "no order", "no window", "prefixes first",
    "weft, schedule only", _RUN,
)  # fmt: skip
_SEEDS: Final = 3
# The constants of the planner were fixed with other seeds.
_FIRST_SEED: Final = 100
_CODE: Final = (
    *SIMULATION,
    "gateway/weft_gateway/workflows",
    "loadgen/weft_bench/planner",
    "loadgen/weft_bench/workflows",
)
_PLANNER: Final = (
    "weft is the planner, which is a part of the bench; weft run has a simpler plan (helium-t3)"
)
_NOTES: Final = (
    "engines are an eighth of an A100's in slots, cache, tokens and fixed time of a step, "
    "and batches an eighth of the paper's: times are an eighth, ratios are kept, and static "
    "prefixes weigh eight times as much in the cache",
    "lengths of prompts and answers are assumed, because the paper publishes none; answers vary "
    "around the mean, which planners know exactly",
    "random is LangGraph without its barrier between the steps of a row: a call is sent as soon as "
    "its inputs are there",
    "longest prefix first knows the calls that it sent, not the engine's cache; Parrot and KVFlow "
    "are their dispatch rules on the same engine, without their engines. Parrot sends all calls "
    "that begin with the same text to one engine, and may leave the other one idle",
    "the time of planning is not contained: see helium-11",
)


def measure(cell: Cell) -> Values:
    """Return the figures of a cell with the settings `shape`, `rows`, `system` and `slow`.

    slow: factor on the second engine's costs. seconds: of the batch. predicted: over the actual
    seconds, for plans. Raises the errors of `play`.
    """
    from weft_bench.workflows.parts import dispatcher
    from weft_bench.workflows.shapes import SHAPES
    from weft_bench.workflows.systems import Scene, engines

    batch = SHAPES[cell.text("shape")](int(cell.number("rows")))
    shapes = engines(slow=(1.0, cell.number("slow")))
    scene = Scene(batch, shapes, _FIRST_SEED + cell.seed)
    found = scene.run(dispatcher(scene, cell.text("system")))
    values = {
        "seconds": found.seconds,
        "hit_rate": found.hit_rate,
        "computed": found.fresh_tokens,
        "preemptions": found.preemptions,
    }
    if cell.text("system") == _OURS:
        values["predicted"] = scene.planned().seconds / found.seconds
    return values


def _cells(
    shapes: Sequence[str],
    systems: Sequence[str],
    rows: int = 0,
    slow: float = 1.0,
) -> Sequence[Cell]:
    return [
        cell
        for shape in shapes
        for system in systems
        for cell in cells(
            _SEEDS,
            shape=shape,
            rows=rows or _ROWS[shape],
            system=system,
            slow=slow,
        )
    ]


def _part_cells(quick: bool) -> Sequence[Cell]:
    shapes = ("reflect",) if quick else ("map-reduce", "reflect", "trading")
    parts = (_OURS, "even slices") if quick else _PARTS
    return [cell for slow in (1.0, 2.0) for cell in _cells(shapes, parts, 12 if quick else 0, slow)]


def _table(found: Measured, title: str, base: str) -> Table:
    columns = {
        "s": mean("seconds"),
        f"over {base}'s": over("seconds", system=base),
        "hit rate": mean("hit_rate"),
        "prompt tokens computed": mean("computed"),
    }
    return table(found, title, {"workflow": "shape", "system": "system"}, columns)


def _headline(found: Measured, base: str, rivals: Sequence[str], what: str) -> Headline:
    scores = [
        less(
            f"{shape} ({rival})",
            at.where(system=base).ratio("seconds", at.where(system=rival)),
        )
        for shape, at in each(found, "shape")
        for rival in rivals
    ]
    return Headline(what, scores)


def _goals(found: Measured) -> Sequence[Goal]:
    """Return the goals over all workflows: 1.8 times as fast as LangGraph's dispatch, 1.15 times as
    fast as Algorithm 1, Algorithm 1 within the published ranges, and predictions within 15%.
    """
    if not found:
        return []
    ours = pooled(found.where(system=_OURS), "seconds")
    off = [
        abs(log(values["predicted"])) for values in found.values.values() if "predicted" in values
    ]
    return [
        *(
            Goal(
                f"time over that of {rival}, over workflows:",
                ours.ratio("seconds", pooled(found.where(system=rival), "seconds")),
                limit,
            )
            for rival, limit in (("random", 1 / 1.8), ("helium", 1 / 1.15))
        ),
        *_reproduced(found),
        Goal("greatest distance of a prediction, as a ratio:", _exact(exp(max(off))), 1.15),
    ]


# Latency relative to Helium in its Table 2: the least and the greatest of its workflows.
_PUBLISHED: Final = {
    "operator-wise": (1.02, 1.58),
    "random": (1.09, 1.83),
    "parrot": (1.02, 2.21),
    "kvflow": (1.14, 1.56),
}


def _reproduced(found: Measured) -> list[Goal]:
    """Return the goals that Algorithm 1 leaves each system as far behind as published."""
    theirs = pooled(found.where(system="helium"), "seconds")
    goals = []
    for rival, (least, most) in _PUBLISHED.items():
        ratio = pooled(found.where(system=rival), "seconds").ratio("seconds", theirs)
        what = f"time of {rival} over that of helium, published {least} to {most}:"
        limit = least if ratio.middle < least else most
        goals.append(Goal(what, ratio, limit, less=limit == most))
    return goals


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value)


def _predictions(found: Measured) -> Table:
    rows = [
        (shape, str(at.where(system=_OURS).estimate("predicted")))
        for shape, at in each(found, "shape")
    ]
    return Table("predicted over actual time of the plan", ("workflow", "ratio"), rows)


TABLE_2: Final = Experiment(
    name="helium-t2",
    title="Batches of Helium's workflows under its rivals",
    source="Helium, Table 2 and Figures 5 and 7",
    published="latency relative to Helium, average: vLLM query by query 66.27, operator by "
    "operator 1.25, LangGraph 1.28, Parrot 1.44, KVFlow 1.32",
    cells=lambda quick: (
        _cells(("reflect",), ("random", "helium", _OURS), rows=24)
        if quick
        else _cells(tuple(_ROWS), _SYSTEMS)
    ),
    measure=measure,
    tables=lambda found: (
        [_table(found, "time of a batch", _OURS), _predictions(found)] if found else []
    ),
    notes=(*_NOTES, _PLANNER),
    headline=lambda found: _headline(
        found, _OURS, ("random", "helium"), "time of a batch over the other's; less is better"
    ),
    goals=_goals,
    code=_CODE,
    order="fcfs",
    first_seed=_FIRST_SEED,
)

TABLE_4: Final = Experiment(
    name="helium-t4",
    title="Schedules of the trading workflow without precomputed prefixes",
    source="Helium, Table 4",
    published="query-wise 658.54 s with 42.3% hits, operator-wise 419.03 and 40.8, random 193.54 "
    "and 37.1, longest prefix first 188.93 and 37.9, Helium 149.76 and 56.5",
    cells=lambda quick: _cells(
        ("trading",),
        ("random", *_SCHEDULES[-2:]) if quick else _SCHEDULES,
        rows=2 if quick else 0,
    ),
    measure=measure,
    tables=lambda found: [_table(found, "time of a batch", _SCHEDULES[-1])] if found else [],
    notes=(*_NOTES, _PLANNER),
    headline=lambda found: _headline(
        found,
        _SCHEDULES[-1],
        ("random", "longest prefix", "helium, schedule only"),
        "time of a batch over the other's; less is better",
    ),
    goals=lambda found: (
        [Goal("hit rate:", found.where(system=_SCHEDULES[-1]).estimate("hit_rate"), 0.59, False)]
        if found
        else []
    ),
    code=_CODE,
    order="fcfs",
    first_seed=_FIRST_SEED,
)


def _part_tables(found: Measured) -> Sequence[Table]:
    if not found:
        return []
    down = {"engine 2": "slow", "workflow": "shape", "planner": "system"}
    columns = {
        "s": mean("seconds"),
        "over the whole planner's": over("seconds", system=_OURS),
        "hit rate": mean("hit_rate"),
    }
    return [table(found, "time of a batch; engine 2: factor on its costs", down, columns)]


def _part_headline(found: Measured) -> Headline:
    scores = []
    for slow, at in each(found, "slow"):
        ours = pooled(at.where(system=_OURS), "seconds")
        scores += [
            less(
                f"engine 2 x {slow} ({part})",
                ours.ratio("seconds", pooled(at.where(system=part), "seconds")),
            )
            for part in at.levels("system")
            if part != _OURS
        ]
    what = "time of a batch over that of the planner with a change, over workflows; less is better"
    # A part that costs more than it gains is no rival: the planner page names it.
    return Headline(what, scores, rival=False)


# Figure 7's 8, 16, 32 and 80 rows, divided by the scale of the engines.
_BATCHES: Final = (1, 2, 4, 10)

FIGURE_7: Final = Experiment(
    name="helium-7",
    title="Batches of the trading workflow in four sizes",
    source="Helium, Figure 7",
    published="at most 39.50 times as fast as vLLM query by query, operator by operator 4.25, "
    "LangGraph 1.49, Parrot 2.51, KVFlow 1.34",
    cells=lambda quick: [
        cell
        for rows in (_BATCHES[:1] if quick else _BATCHES)
        for cell in _cells(("trading",), (*_SYSTEMS, _RUN), rows=rows)
    ],
    measure=measure,
    tables=lambda found: [_sizes(found)] if found else [],
    notes=(
        *_NOTES,
        "weft is the planner of the bench, weft run the machine and the plan of that command",
        "batches are an eighth of the paper's 8, 16, 32 and 80 rows; helium-t4 has query by query",
        "weft run keeps a single row on one engine, and the other one is idle; the 8 rows of whole "
        "engines would use both",
    ),
    headline=lambda found: Headline(
        "time of a batch over the other's; less is better",
        [
            less(
                f"{rows} rows ({rival})",
                at.where(system=_RUN).ratio("seconds", at.where(system=rival)),
            )
            for rows, at in each(found, "rows")
            for rival in ("operator-wise", "random", "parrot", "kvflow", "helium", _OURS)
        ],
    ),
    goals=lambda found: [
        Goal(
            f"{rows} rows: time over that of random:",
            at.where(system=_RUN).ratio("seconds", at.where(system="random")),
            1 / 1.49,
        )
        for rows, at in each(found, "rows")
    ],
    code=_CODE,
    order="fcfs",
    first_seed=_FIRST_SEED,
)


def _sizes(found: Measured) -> Table:
    columns = {
        "s": mean("seconds"),
        f"over {_RUN}'s": over("seconds", system=_RUN),
        "hit rate": mean("hit_rate"),
    }
    return table(found, "time of a batch", {"rows": "rows", "system": "system"}, columns)


TABLE_3: Final = Experiment(
    name="helium-t3",
    title="Parts of the planner, on equal and unequal engines",
    source="Helium, Table 3; only its rows about the schedule and the cache",
    published="without proactive KV +3.55%, without cache-aware scheduling +17.66%",
    cells=_part_cells,
    measure=measure,
    tables=_part_tables,
    notes=(
        *_NOTES,
        "even slices: as if both engines were equal; no rows: each row on a random engine; no "
        "order: calls in any order on their engines; no window: all ready calls are sent at once; "
        "prefixes first: static prefixes are sent before all calls; schedule only: an engine "
        "without calls gets none of the other's; weft run: the machine and the plan of that "
        "command, which knows speeds, but no lengths",
    ),
    headline=_part_headline,
    code=_CODE,
    order="fcfs",
    first_seed=_FIRST_SEED,
)
