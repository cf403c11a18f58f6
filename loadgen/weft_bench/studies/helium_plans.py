"""The planner itself: its time and size, and the distance of schedules to the optimum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from weft_bench.studies.cells import Cell, Estimate, Measured, Values, cells
from weft_bench.studies.experiment import Experiment, Goal, Headline, Table, less
from weft_bench.studies.show import each, mean, pooled, table

if TYPE_CHECKING:
    from weft_bench.workflows.tasks import Batch

_SEEDS: Final = 3
# The constants of the planner were fixed with other seeds.
_FIRST_SEED: Final = 320
_CODE: Final = (
    "gateway/weft_gateway/policies/batch_window.py",
    "gateway/weft_gateway/policies/costs.py",
    "gateway/weft_gateway/workflows",
    "loadgen/weft_bench/planner",
    "loadgen/weft_bench/costs",
    "loadgen/weft_bench/studies/helium_plans.py",
    "loadgen/weft_bench/workflows",
)


def measure_planning(cell: Cell) -> Values:
    """Return time and memory of planning, for the settings `shape` and `rows`.

    ms: CPU milliseconds of a plan on two replicas, after one that fills the tokenizer's cache.
    limit_ms: the limit that the planner must keep. plan_kib: its size as JSON. peak_kib: memory
    that planning allocates at once.
    """
    import tracemalloc
    from time import process_time

    from weft_bench.planner.plan import plan
    from weft_bench.workflows.shapes import SHAPES
    from weft_bench.workflows.systems import engines, replicas_of

    rows = int(cell.number("rows"))
    batch = SHAPES[cell.text("shape")](rows)
    replicas = replicas_of(engines())

    def made() -> bytes:
        return plan(batch.calls, rows, replicas, batch.distinct, cell.seed).encode()

    made()
    begun = process_time()
    data = made()
    spent = process_time() - begun
    tracemalloc.start()
    made()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "ms": 1e3 * spent,
        "limit_ms": 50.0 if rows <= 16 else 1000.0,
        "plan_kib": len(data) / 1024,
        "peak_kib": peak / 1024,
    }


def _planning_cells(quick: bool) -> Sequence[Cell]:
    shapes = ("trading",) if quick else ("map-reduce", "reflect", "parallel", "trading")
    return [
        cell
        for shape in shapes
        for rows in (16, 10_000)
        for cell in cells(_SEEDS, shape=shape, rows=rows)
    ]


def _planning_goals(found: Measured) -> Sequence[Goal]:
    goals = []
    for name, at in each(found, "shape", "rows"):
        limit = next(iter(at.values.values()))["limit_ms"]
        goals.append(Goal(f"{name} rows: CPU ms", at.estimate("ms"), limit))
        goals.append(Goal(f"{name} rows: KiB while planning", at.estimate("peak_kib"), 1024))
    return goals


FIGURE_11: Final = Experiment(
    name="helium-11",
    title="Time and memory of planning",
    source="Helium, Figure 11",
    published="planning takes less than 230 ms and 552 KiB, for the trading workflow",
    cells=_planning_cells,
    measure=measure_planning,
    tables=lambda found: (
        [
            table(
                found,
                "planning on two replicas",
                {"workflow": "shape", "rows": "rows"},
                {
                    "CPU ms": mean("ms"),
                    "plan, KiB": mean("plan_kib"),
                    "peak of memory, KiB": mean("peak_kib"),
                },
            )
        ]
        if found
        else []
    ),
    goals=_planning_goals,
    kind="cpu",
    code=_CODE,
    order="",
    exclusive=True,
)


_KV_TOKENS: Final = 8192
_LONGER: Final = (1.0, 2.5)
# By workflow: builds a batch of a number of agents and rows.
_SMALL: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    "map-reduce": ((2, 2), (2, 4), (4, 2)),
    "map-reduce-context": ((2, 2), (2, 4), (4, 2)),
    "debate": ((2, 2), (3, 2)),
    "debate-context": ((2, 2), (3, 2)),
    "reflect": ((2, 2), (2, 3)),
    "iterative": ((2, 4), (4, 3)),
    "parallel": ((2, 2), (3, 2)),
}
_SCHEDULES: Final = (
    "query-wise", "operator-wise", "random", "longest prefix", "helium", "weft",
)  # fmt: skip


def _small(name: str, agents: int, rows: int) -> Batch:
    from weft_bench.workflows import shapes

    made: Mapping[str, Callable[[], Batch]] = {
        "map-reduce": lambda: shapes.map_reduce(rows, agents),
        "map-reduce-context": lambda: shapes.map_reduce(rows, agents, 700),
        "debate": lambda: shapes.debate(rows, agents),
        "debate-context": lambda: shapes.debate(rows, agents, context=700),
        "reflect": lambda: shapes.reflect(rows, agents),
        "iterative": lambda: shapes.iterative(rows, agents),
        "parallel": lambda: shapes.parallel(rows, agents, 1),
    }
    batch = made[name]()
    # Two questions for each context; the shapes have six.
    return replace(batch, distinct=dict.fromkeys(batch.distinct, max(1, rows // 2)))


def measure_gap(cell: Cell) -> Values:
    """Return token steps of each schedule over the optimum's, less one, in percent.

    Its settings are `shape`, `agents`, `rows` and `longer`, a factor on all lengths. The seed
    varies the lengths by up to 30%, and random schedules.
    """
    from random import Random

    from weft_bench.planner.baselines import BASELINES
    from weft_bench.planner.plan import candidates
    from weft_bench.planner.problem import Rows, expand, operations
    from weft_bench.planner.radix import build_tree, dependencies
    from weft_bench.planner.token_steps import Worker, token_steps
    from weft_bench.workflows.exact import solve
    from weft_bench.workflows.systems import engines, replicas_of
    from weft_bench.workflows.tasks import varied
    from weft_bench.workloads.streams import stream

    worker, seed = Worker(_KV_TOKENS), _FIRST_SEED + cell.seed
    batch = _small(cell.text("shape"), int(cell.number("agents")), int(cell.number("rows")))
    batch = varied(batch, stream(seed, "lengths"), cell.number("longer"))
    found = operations(batch.calls, build_tree(batch.calls, block=1))
    place = {one.name: number for number, one in enumerate(found)}
    closure = [
        sorted(place[need] for need in needs) for needs in dependencies(batch.calls).values()
    ]
    calls = expand(found, closure, Rows(batch.rows, batch.distinct), 1)

    def steps(order: Sequence[int]) -> float:
        return token_steps([order], calls.answers, calls.needs, calls.prefill, [worker])

    (engine,) = replicas_of(engines(replicas=1))
    engine = replace(engine, costs=replace(engine.costs, kv_tokens=_KV_TOKENS), block=1)
    made = {
        plan.order: steps(
            [rank * len(found) + place[name] for name, rank in plan.calls(engine.name)]
        )
        for plan in candidates(batch.calls, batch.rows, [engine], batch.distinct)
    }
    least = solve(calls, worker).steps
    costs = {
        name: steps(one(calls, worker, Random(seed)))
        for name, one in BASELINES.items()
        if name in _SCHEDULES
    }
    costs["helium"] = made["prefix"]
    costs["weft"] = min(made.values())
    return {
        "calls": len(calls),
        "steps": least,
        **{f"gap of {name}": 100 * (cost / least - 1) for name, cost in costs.items()},
        **{f"steps of {name}": cost for name, cost in costs.items()},
    }


def _gap_cells(quick: bool) -> Sequence[Cell]:
    sizes = {"debate": ((2, 2),)} if quick else _SMALL
    return [
        cell
        for longer in ((1.0,) if quick else _LONGER)
        for shape, found in sizes.items()
        for agents, rows in found
        for cell in cells(_SEEDS, longer=longer, shape=shape, agents=agents, rows=rows)
    ]


def _gap_tables(found: Measured) -> Sequence[Table]:
    if not found:
        return []
    rows = []
    for longer, at in each(found, "longer"):
        for name in _SCHEDULES:
            gaps = [values[f"gap of {name}"] for values in at.values.values()]
            costs = [values[f"steps of {name}"] for values in at.values.values()]
            figures = (sum(gaps) / len(gaps), min(gaps), max(gaps), sum(costs) / len(costs))
            rows.append((longer, name, *(f"{one:,.1f}" for one in figures)))
    title = f"gap to the proven optimum in percent, {len(found.values)} batches"
    heads = ("lengths", "schedule", "average", "least", "most", "mean token steps")
    down = {"lengths": "longer", "workflow": "shape", "agents": "agents", "rows": "rows"}
    columns = {"calls": mean("calls"), **{name: mean(f"gap of {name}") for name in _SCHEDULES}}
    return [Table(title, heads, rows, labels=2), table(found, "gap, percent", down, columns)]


def _gap_headline(found: Measured) -> Headline:
    scores = [
        less(
            f"lengths x {longer} ({rival})",
            pooled(at, "steps of weft").ratio("steps of weft", _steps_of(at, rival)),
        )
        for longer, at in each(found, "longer")
        for rival in ("random", "longest prefix", "helium")
    ]
    return Headline("token steps over the other schedule's; less is better", scores)


def _gap_goals(found: Measured) -> Sequence[Goal]:
    goals = []
    for longer, at in each(found, "longer"):
        gaps = [values["gap of weft"] for values in at.values.values()]
        for what, gap, limit in (
            ("mean", sum(gaps) / len(gaps), 0.5),
            ("greatest", max(gaps), 2.0),
        ):
            text = f"lengths x {longer}: {what} gap in percent:"
            goals.append(Goal(text, Estimate(gap, gap, gap), limit))
    return goals


def _steps_of(found: Measured, name: str) -> Measured:
    """Return the token steps of a schedule as if they were Weft's."""
    costs = pooled(found, f"steps of {name}").values
    return Measured({c: {"steps of weft": v[f"steps of {name}"]} for c, v in costs.items()})


TABLE_5: Final = Experiment(
    name="helium-t5",
    title="Gap of schedules to the optimum, in token steps",
    source="Helium, Table 5",
    published="gap on average and at most: query-wise 72.4% and 149.2%, operator-wise 17.6 and "
    "30.7, random 16.3 and 30.3, longest prefix first 14.5 and 30.5, Helium 0.9 and 3.6; Helium's "
    "mean is 13.4 million token steps, or 1,636 divided by the cache's tokens, as here",
    cells=_gap_cells,
    measure=measure_gap,
    tables=_gap_tables,
    notes=(
        "one worker with 8,192 KV tokens and 2 to 4 agents and rows, as in the paper; lengths are "
        "assumed, and 2.5 times as long ones give about the published token steps",
        "weft is the best of the planner's candidates in token steps, among them the order of "
        "single calls for small batches; the planner itself compares them in seconds",
        "the optima are proven by dynamic programming over sets of calls; tests compare it with "
        "HiGHS on batches of 6 to 8 calls and with CP-SAT on batches of 10 to 16 calls",
        "Algorithm 1 has a gap of 0.9% in the paper, whose agents, lengths and code are unknown",
    ),
    headline=_gap_headline,
    goals=_gap_goals,
    code=_CODE,
    order="",
    first_seed=_FIRST_SEED,
)
