"""Batches of workflows under the systems of Helium's evaluation, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Final

from weft_bench.studies.cells import Cell, Estimate, Measured, Values, cells
from weft_bench.studies.experiment import SIMULATION, Experiment, Goal, Headline, Table, less
from weft_bench.studies.show import each, mean, over, pooled, table

OURS: Final = "weft run"
PLANNER: Final = "weft"
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
_RIVALS: Final = ("operator-wise", "langgraph", "random", "parrot", "kvflow", "helium")
# Rivals that make the same calls as `weft run`: what remains is the schedule.
_REWRITTEN: Final = ("random, rewrites", "longest prefix, rewrites")
_SYSTEMS: Final = (*_RIVALS, *_REWRITTEN, PLANNER, OURS)
# Only the order and the placement: nothing is sent ahead, and no call is merged.
_SCHEDULES: Final = (
    "query-wise", "operator-wise", "random", "longest prefix", "helium, schedule only",
    "weft, schedule only", "weft run, no rewrites",
)  # fmt: skip
_SEEDS: Final = 3
# Rules and constants were chosen with other seeds.
FIRST_SEED: Final = 200
CODE: Final = (
    *SIMULATION,
    "gateway/weft_gateway/policies/batch_window.py",
    "gateway/weft_gateway/policies/costs.py",
    "gateway/weft_gateway/workflows",
    "loadgen/weft_bench/planner",
    "loadgen/weft_bench/workflows",
)
NOTES: Final = (
    "engines are an eighth of an A100's in slots, cache, tokens and fixed time of a step, "
    "and batches an eighth of the paper's: times are an eighth, ratios are kept, and static "
    "prefixes weigh eight times as much in the cache",
    "prompts, agents, rounds and roles are those of the authors' code (mlsys-io/helium_demo); "
    "lengths of data and answers are assumed, because they are not published; answers vary around "
    "the mean, which planners know exactly",
    "14 experts on MMLU have 7 roles and 8 traders 4 prompts in the authors' code, so equal calls "
    "occur in each row. helium, weft and weft run make them once (weft_run.plan.rewrite); "
    "the fundamentals analyst reads what it read on the day before, and they have its answers "
    "(weft run --prompt-cache). random and longest prefix are also shown with these rewrites: the "
    "distance between them and weft run is that of the schedule alone",
    "langgraph runs a row step by step; random is the same without the barrier between the steps: "
    "a call is sent as soon as its inputs are there",
    "longest prefix first knows the calls that it sent, not the engine's cache; Parrot and KVFlow "
    "are their dispatch rules on the same engine, without their engines. Parrot sends all calls "
    "with one static prefix to one engine, until its slots are full",
    "prompts never continue a cached answer, because the text before an answer is not the text "
    "before it in a later prompt; a chat template may allow more, and then the least is less",
    "the least of a system's calls is a time that no schedule of them can beat: each different "
    "beginning of a prompt is computed once, all slots are always full, and no call waits",
    "the time of planning is not contained: see helium-11",
    "weft run is the machine and the plan of that command, which knows speeds, but no lengths; "
    "weft is the planner, which is a part of the bench",
)


def measure(cell: Cell) -> Values:
    """Return the figures of a cell with the settings `shape`, `rows`, `system`, `slow` and `graph`.

    slow: factor on the second engine's costs. graph: `own` for a batch after the rewrites of the
    system, `written` for none. calls: that the engines get. seconds: of the batch. over_least: over
    those that no schedule of the same calls can beat. predicted: over the actual seconds, for
    plans. Raises the errors of `play`.
    """
    from weft_bench.workflows.bound import least_seconds
    from weft_bench.workflows.parts import batch_for, dispatcher
    from weft_bench.workflows.shapes import SHAPES
    from weft_bench.workflows.systems import Scene, engines

    system = cell.text("system")
    written = SHAPES[cell.text("shape")](int(cell.number("rows")))
    batch = written if cell.text("graph") == "written" else batch_for(written, system)
    shapes = engines(slow=(1.0, cell.number("slow")))
    scene = Scene(batch, shapes, FIRST_SEED + cell.seed)
    found = scene.run(dispatcher(scene, system))
    values = {
        "seconds": found.seconds,
        "calls": len(scene.tasks),
        "over_least": found.seconds / least_seconds(scene.tasks, shapes),
        "hit_rate": found.hit_rate,
        "computed": found.fresh_tokens,
        "preemptions": found.preemptions,
    }
    if system == PLANNER:
        values["predicted"] = scene.planned().seconds / found.seconds
    return values


def batches(
    shapes: Sequence[str],
    systems: Sequence[str],
    rows: int = 0,
    slow: float = 1.0,
    graph: str = "own",
) -> Sequence[Cell]:
    """Return the cells of these workflows and systems. rows: 0 for those of the paper."""
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
            graph=graph,
        )
    ]


def _table(found: Measured, title: str, base: str) -> Table:
    columns = {
        "s": mean("seconds"),
        f"over {base}'s": over("seconds", system=base),
        "over the least of its calls": mean("over_least"),
        "hit rate": mean("hit_rate"),
        "calls": mean("calls"),
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
    ours = pooled(found.where(system=OURS), "seconds")
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
            for rival, limit in (("langgraph", 1 / 1.8), ("random", 1 / 1.8), ("helium", 1 / 1.15))
        ),
        *_reproduced(found),
        Goal("greatest distance of a prediction, as a ratio:", _exact(exp(max(off))), 1.15),
    ]


# Latency relative to Helium in its Table 2: the mean, the least and the greatest of its workflows.
_PUBLISHED: Final = {
    "operator-wise": (1.25, 1.02, 1.58),
    "langgraph": (1.28, 1.09, 1.83),
    "parrot": (1.44, 1.02, 2.21),
    "kvflow": (1.32, 1.14, 1.56),
}


def _reproduced(found: Measured) -> list[Goal]:
    """Return the goals that Algorithm 1 leaves each system as far behind as published."""
    theirs = pooled(found.where(system="helium"), "seconds")
    goals = []
    for rival, (average, least, most) in _PUBLISHED.items():
        ratio = pooled(found.where(system=rival), "seconds").ratio("seconds", theirs)
        what = f"time of {rival} over that of helium, published {average}, from {least} to {most}:"
        limit = least if ratio.middle < least else most
        goals.append(Goal(what, ratio, limit, less=limit == most))
    return goals


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value)


def _predictions(found: Measured) -> Table:
    rows = [
        (shape, str(at.where(system=PLANNER).estimate("predicted")))
        for shape, at in each(found, "shape")
    ]
    return Table("predicted over actual time of the plan", ("workflow", "ratio"), rows)


def _least(found: Measured) -> Table:
    """Return the time of each system over that of `weft run`, how far it is from the least time of
    its calls, and how far that of the calls of `weft run` is from it, over workflows.
    """
    ours = found.where(system=OURS).values
    whole = pooled(found.where(system=OURS), "seconds")
    least = {cell: {"seconds": v["seconds"] / v["over_least"]} for cell, v in ours.items()}
    rows = [
        (
            system,
            str(pooled(at, "seconds").ratio("seconds", whole)),
            str(pooled(at, "over_least").estimate("over_least")),
            str(pooled(Measured(least), "seconds").ratio("seconds", pooled(at, "seconds"))),
        )
        for system, at in each(found, "system")
    ]
    heads = (
        "system", f"time over {OURS}'s", "over the least of its calls",
        f"least of {OURS}'s calls over its time",
    )  # fmt: skip
    return Table("over workflows", heads, rows)


TABLE_2: Final = Experiment(
    name="helium-t2",
    title="Batches of Helium's workflows under its rivals",
    source="Helium, Table 2 and Figures 5 and 7",
    published="latency relative to Helium, average: vLLM query by query 66.27, operator by "
    "operator 1.25, LangGraph 1.28, Parrot 1.44, KVFlow 1.32",
    cells=lambda quick: (
        batches(("reflect",), ("langgraph", "random", "helium", PLANNER, OURS), rows=24)
        if quick
        else batches(tuple(_ROWS), _SYSTEMS)
    ),
    measure=measure,
    tables=lambda found: (
        [_table(found, "time of a batch", OURS), _least(found), _predictions(found)]
        if found
        else []
    ),
    notes=NOTES,
    headline=lambda found: _headline(
        found,
        OURS,
        ("langgraph", "random", "helium", *_REWRITTEN),
        "time of a batch over the other's; less is better",
    ),
    goals=_goals,
    code=CODE,
    order="fcfs",
    first_seed=FIRST_SEED,
)

TABLE_4: Final = Experiment(
    name="helium-t4",
    title="Schedules of the trading workflow without precomputed prefixes",
    source="Helium, Table 4",
    published="query-wise 658.54 s with 42.3% hits, operator-wise 419.03 and 40.8, random 193.54 "
    "and 37.1, longest prefix first 188.93 and 37.9, Helium 149.76 and 56.5",
    cells=lambda quick: batches(
        ("trading",),
        ("random", *_SCHEDULES[-3:]) if quick else _SCHEDULES,
        rows=2 if quick else 0,
        graph="written",
    ),
    measure=measure,
    tables=lambda found: [_table(found, "time of a batch", _SCHEDULES[-1])] if found else [],
    notes=NOTES,
    headline=lambda found: _headline(
        found,
        _SCHEDULES[-1],
        ("random", "longest prefix", *_SCHEDULES[-3:-1]),
        "time of a batch over the other's; less is better",
    ),
    goals=lambda found: (
        [Goal("hit rate:", found.where(system=_SCHEDULES[-1]).estimate("hit_rate"), 0.59, False)]
        if found
        else []
    ),
    code=CODE,
    order="fcfs",
    first_seed=FIRST_SEED,
)


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
        for cell in batches(("trading",), _SYSTEMS, rows=rows)
    ],
    measure=measure,
    tables=lambda found: [_sizes(found)] if found else [],
    notes=(
        *NOTES,
        "batches are an eighth of the paper's 8, 16, 32 and 80 rows; helium-t4 has query by query",
        "Algorithm 1 cuts rows into slices, so it keeps a single row on one engine; it would "
        "divide the 8 rows of whole engines",
    ),
    headline=lambda found: Headline(
        "time of a batch over the other's; less is better",
        [
            less(
                f"{rows} rows ({rival})",
                at.where(system=OURS).ratio("seconds", at.where(system=rival)),
            )
            for rows, at in each(found, "rows")
            for rival in (*_RIVALS, *_REWRITTEN, PLANNER)
        ],
    ),
    goals=lambda found: [
        Goal(
            f"{rows} rows: time over that of {rival}:",
            at.where(system=OURS).ratio("seconds", at.where(system=rival)),
            1 / 1.49,
        )
        for rows, at in each(found, "rows")
        for rival in ("langgraph", "random")
    ],
    code=CODE,
    order="fcfs",
    first_seed=FIRST_SEED,
)


def _sizes(found: Measured) -> Table:
    columns = {
        "s": mean("seconds"),
        f"over {OURS}'s": over("seconds", system=OURS),
        "hit rate": mean("hit_rate"),
    }
    return table(found, "time of a batch", {"rows": "rows", "system": "system"}, columns)
