"""HexGen-Flow under stress, a shift of the load, another workflow, and single calls beside it; and
cases in which deadlines or forecasts mislead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft_bench.studies.cells import Cell, Measured, Setting, cells
from weft_bench.studies.experiment import Experiment, Goal, Headline, Table, less, more
from weft_bench.studies.hexgen import FIRST_SEED, OURS, PAPERS, REPRODUCTION, measure
from weft_bench.studies.hexgen_pools import CODE, NOTES, P95, SEEDS
from weft_bench.studies.show import Shown, each, mean, over, table, under

_HETERO: Final[Mapping[str, Setting]] = {"trace": "text2sql-3", "pool": "hetero-1", "queries": 100}
# By name: settings of the scene.
_SCENES: Final[Mapping[str, Mapping[str, Setting]]] = {
    "stress, 30/s": {**_HETERO, "rate": 30.0},
    "shift, 5 to 20 to 5/s": {**_HETERO, "rate": 10.0, "shift": "0.5,2,0.5"},
    "shift around capacity": {**_HETERO, "load": 0.8, "shift": "0.5,2,0.5"},
    "trace 4, qwen-1": {"trace": "text2sql-4", "pool": "qwen-1", "rate": 10.0, "queries": 200},
    "trace 6": {"trace": "text2sql-6", "pool": "hetero-1", "rate": 0.5, "queries": 80},
}
_SYSTEMS: Final = ("vllm", "ray", REPRODUCTION, OURS)
_QUICK: Final = {"trace 4, qwen-1": {**_SCENES["trace 4, qwen-1"], "queries": 60}}


def _cells(quick: bool) -> Sequence[Cell]:
    names = ("vllm", REPRODUCTION, OURS) if quick else _SYSTEMS
    return [
        cell
        for name, scene in (_QUICK if quick else _SCENES).items()
        for system in names
        for cell in cells(SEEDS, case=name, cache=True, system=system, **scene)
    ]


def _measure(cell: Cell) -> Mapping[str, float]:
    """Return the figures of a cell without the settings that name it."""
    settings = tuple(one for one in cell.settings if one[0] not in ("case", "kind"))
    return measure(Cell(settings, cell.seed))


def _tables(found: Measured) -> Sequence[Table]:
    columns: dict[str, Shown] = {
        "P95": mean("p95_scale"),
        f"{OURS}'s over its": under("p95_scale", system=OURS),
        f"{REPRODUCTION}'s over its": under("p95_scale", system=REPRODUCTION),
        "mean slowdown": mean("slowdown"),
        "P95 of single calls": mean("single_p95"),
        "queries/s": mean("throughput"),
    }
    title = "least SLO scale with 95% attainment (P95) of queries"
    return [table(found, title, {"case": "case", "system": "system"}, columns)]


# A goal of this project, for each rival of the paper and each case.
_LESS: Final = 0.7


def _goals(found: Measured) -> Sequence[Goal]:
    return [
        Goal(f"{case}: P95 over that of {rival}:", ratio, _LESS)
        for case, at in each(found, "case")
        for rival in at.levels("system")
        if rival in PAPERS
        for ratio in [at.where(system=OURS).ratio("p95_scale", at.where(system=rival))]
    ]


def _headline(found: Measured) -> Headline:
    scores = [
        less(f"{case} ({rival})", at.where(system=OURS).ratio("p95_scale", at.where(system=rival)))
        for case, at in each(found, "case")
        for rival in at.levels("system")
        if rival != OURS
    ]
    return Headline(P95, scores, "0.62 to 0.95")


# Deadlines that no query can meet, wrong forecasts, bursts, and few slots. The rival is the default
# order with the same balancer.
_DEFAULT: Final = "default order"
_ORDERS: Final[Mapping[str, Mapping[str, Setting]]] = {
    OURS: {},
    _DEFAULT: {"order": "resident"},
}
_EDGES: Final[Mapping[str, Mapping[str, Setting]]] = {
    "no target can be met": {"rate": 0.5, "scale": 0.2},
    "all targets are loose": {"rate": 0.5, "scale": 50.0},
    "forecasts four times too long": {"rate": 0.5, "scale": 5.0, "forecast_error": 4.0},
    "forecasts four times too short": {"rate": 0.5, "scale": 5.0, "forecast_error": 0.25},
    "light load": {"load": 0.3, "scale": 3.0},
    "bursts (CV 13)": {"load": 0.5, "scale": 3.0, "bursts": True},
    "equal replicas, 6 slots": {
        "pool": "homo",
        "rate": 0.5,
        "scale": 4.0,
        "slots": 6,
        "balancer": "locality",
    },
}


def _edge_cells(quick: bool) -> Sequence[Cell]:
    edges = dict(list(_EDGES.items())[:1]) if quick else _EDGES
    common: Mapping[str, Setting] = {**_HETERO, "queries": 30 if quick else 100, "cache": True}
    return [
        cell
        for name, edge in edges.items()
        for order, settings in _ORDERS.items()
        for cell in cells(
            SEEDS, case=name, kind=order, system=OURS, **{**common, **edge, **settings}
        )
    ]


def _edge_tables(found: Measured) -> Sequence[Table]:
    columns: dict[str, Shown] = {
        "mean latency, s": mean("latency"),
        f"{OURS}'s over its": under("latency", kind=OURS),
        "P95 slowdown": mean("slowdown_p95"),
        f"P95, {OURS}'s over its": under("slowdown_p95", kind=OURS),
        "attained": mean("attained"),
        "queries/s": mean("throughput"),
    }
    title = "mean latency of slack beside the default order, both with the same balancer"
    return [table(found, title, {"case": "case", "order": "kind"}, columns)]


# A goal of this project: of the mean latency over that of the default order.
_NEVER_ABOVE: Final = 1.05


def _edge_goals(found: Measured) -> Sequence[Goal]:
    return [
        Goal(f"{case}: mean latency over that of the {_DEFAULT}:", ratio, _NEVER_ABOVE)
        for case, at in each(found, "case")
        for ratio in [at.where(kind=OURS).ratio("latency", at.where(kind=_DEFAULT))]
    ]


def _edge_headline(found: Measured) -> Headline:
    scores = [
        less(case, at.where(kind=OURS).ratio("latency", at.where(kind=_DEFAULT)))
        for case, at in each(found, "case")
    ]
    what = "mean query latency over that of the default order, same balancer; less is better"
    return Headline(what, scores)


# Goodput at these scales, with forecasts and with the true future.
_LIMIT_SCALES: Final[Mapping[bool, tuple[float, ...]]] = {True: (4.0, 6.0), False: (8.0, 12.0)}
_FUTURE: Final[Mapping[str, Mapping[str, Setting]]] = {
    "learned": {},
    "known": {"known": True},
}


def _limit_cells(quick: bool) -> Sequence[Cell]:
    scales = {True: (4.0,)} if quick else _LIMIT_SCALES
    return [
        cell
        for cache, levels in scales.items()
        for pool in ("hetero-1",)
        for scale in levels
        for future, settings in _FUTURE.items()
        for cell in cells(
            SEEDS,
            case=future,
            trace="text2sql-3",
            pool=pool,
            rate=0.5,
            cache=cache,
            queries=30 if quick else 100,
            system=OURS,
            scale=scale,
            **settings,
        )
    ]


def _limit_tables(found: Measured) -> Sequence[Table]:
    columns: dict[str, Shown] = {
        "attained": mean("attained"),
        "goodput, queries/s": mean("goodput"),
        "over the known future's": over("goodput", case="known"),
        "P95 slowdown": mean("slowdown_p95"),
    }
    title = "queries a second within their SLO, by what the gateway knows; text2sql-3 at 0.5/s"
    down = {"pool": "pool", "cache": "cache", "scale": "scale", "future": "case"}
    return [table(found, title, down, columns)]


# A goal of this project: of the goodput over that with the true future.
_OF_LIMIT: Final = 0.9


def _limit_goals(found: Measured) -> Sequence[Goal]:
    return [
        Goal(
            f"cache {cache}, scale {scale}: goodput over the known future's:",
            ratio,
            _OF_LIMIT,
            less=False,
        )
        for cache, cached in each(found, "cache")
        for scale, at in each(cached, "scale")
        for ratio in [at.where(case="learned").ratio("goodput", at.where(case="known"))]
    ]


def _limit_headline(found: Measured) -> Headline:
    scores = [
        more(
            f"{scene} (scale)",
            at.where(case="learned").ratio("goodput", at.where(case="known")),
        )
        for scene, at in each(found, "pool", "cache", "scale")
    ]
    what = "goodput over that with known answers and paths; more is better"
    return Headline(what, scores, rival=False)


LIMIT: Final = Experiment(
    name="hexgen-limit",
    title="Budgets from forecasts and from the true future",
    source="this project",
    published="",
    cells=_limit_cells,
    measure=_measure,
    tables=_limit_tables,
    notes=(
        *NOTES,
        "known: the answer of each call, and the calls after it; the rest of the system is the "
        "same, so this is a limit for forecasts and not for schedulers",
    ),
    headline=_limit_headline,
    code=CODE,
    first_seed=FIRST_SEED,
    order="slack",
    goals=_limit_goals,
)
FIGURE_7: Final = Experiment(
    name="hexgen-7",
    title="Stress, shifts, another workflow, and single calls",
    source="HexGen-Flow, section 5.2, Figure 7",
    published="P95 5.2 to 23.3% lower at 30 queries/s and under a shift, 34.0 to 38.3% on Spider, "
    "18.2 to 36.4% beside single calls",
    cells=_cells,
    measure=_measure,
    tables=_tables,
    notes=(
        *NOTES,
        "100 queries in place of the paper's, whose number is not stated (80 beside single calls, "
        "200 of trace 4): at 5 to 30 queries/s every pool is overloaded within seconds",
        "with prefix cache only; of the paper's rivals, vllm and ray; traces 5 and 6 differ in the "
        "number of single calls",
        "trace 4 runs on the derived presets of a dense 32B model; lengths of MAC-SQL and of "
        "single calls are Weft's choice",
    ),
    headline=_headline,
    code=CODE,
    first_seed=FIRST_SEED,
    order="slack",
    goals=_goals,
)
EDGES: Final = Experiment(
    name="hexgen-edges",
    title="Deadlines and forecasts that mislead",
    source="scenes made for this purpose",
    published="",
    cells=_edge_cells,
    measure=_measure,
    tables=_edge_tables,
    notes=NOTES,
    headline=_edge_headline,
    code=CODE,
    first_seed=FIRST_SEED,
    order="slack",
    goals=_edge_goals,
)
