"""Tables of HexGen-Flow: the stages that each replica serves, and the tuning of alpha."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from weft_bench.studies.cells import Cell, Estimate, Measured, Setting, Values, cells
from weft_bench.studies.experiment import Experiment, Goal, Headline, Plot, Table, less, more
from weft_bench.studies.hexgen import (
    FIRST_SEED,
    OURS,
    REPRODUCTION,
    SYSTEMS,
    Played,
    Scene,
    system_in,
)
from weft_bench.studies.hexgen_pools import CODE, NOTES, SEEDS, on
from weft_bench.studies.show import each, lines

_SCENE: Final[Mapping[str, Setting]] = {"trace": "text2sql-3", "rate": 0.5, "cache": True}
# The deadlines of each play, near the least scale that suffices.
_SCALE: Final = 5.0

# The paper's stages by the beginning of a prompt.
_STAGES: Final[Mapping[str, int]] = {
    "retriever": 1,
    "keywords": 1,
    "candidate": 2,
    "revise": 3,
    "unit tester": 4,
    "unit test": 4,
    "evaluate": 4,
}
# Of hetero-2, in the paper's order.
_REPLICAS: Final = ("A100", "A100", "L40", "A6000")
_DISPATCH: Final[Mapping[str, Mapping[str, Setting]]] = {
    "in turn": {"system": REPRODUCTION, "balancer": "round_robin"},
    "work": {"system": REPRODUCTION},
    "soonest": {"system": OURS},
}
# Percent of each replica's calls by stage. The paper's third replica is the A6000.
_PUBLISHED: Final[Mapping[str, Mapping[int, tuple[float, float, float, float]]]] = {
    "in turn": {
        1: (20.8, 23.1, 26.8, 19.9),
        2: (10.3, 7.8, 9.6, 10.6),
        3: (26.5, 23.0, 21.7, 25.5),
        4: (42.3, 46.0, 41.8, 44.1),
    },
    "work": {
        1: (0.9, 0.5, 32.3, 6.1),
        2: (27.9, 29.6, 3.1, 16.5),
        3: (47.9, 46.6, 8.3, 71.5),
        4: (23.3, 23.3, 56.3, 5.8),
    },
}


def _stage_cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for settings in list(_DISPATCH.values())[: 2 if quick else None]
        for cell in cells(
            SEEDS, pool="hetero-2", queries=20 if quick else 100, **_SCENE, **settings
        )
    ]


def measure_stages(cell: Cell) -> Values:
    """Return the percentage of each stage in the calls of each replica, `stage1_replica0` and so
    on, and the share of prompt tokens on the A100, `fast`.
    """
    played = _played(cell)
    stages = {
        call: _STAGES[name.removeprefix("text2sql/").rstrip(" 0123456789")]
        for call, name in played.stages().items()
    }
    counted = {program.id for program in played.counted(_SCALE)}
    found = Counter(
        (stages[call.program, call.number], call.replica)
        for call in played.at(_SCALE).calls
        if call.program in counted
    )
    values = {"fast": played.figures(_SCALE)["fast"]}
    for number in range(len(_REPLICAS)):
        replica = f"replica-{number}"
        total = sum(count for (_, name), count in found.items() if name == replica)
        for stage in sorted(set(_STAGES.values())):
            share = 100 * found[stage, replica] / total if total else 0.0
            values[f"stage{stage}_replica{number}"] = share
    return values


def _stage_tables(found: Measured) -> Sequence[Table]:
    rows = []
    for stage in sorted(set(_STAGES.values())):
        for dispatch in _named(found).levels("dispatch"):
            at = _named(found).where(dispatch=dispatch)
            published = _PUBLISHED.get(str(dispatch), {}).get(stage)
            shown = [
                str(at.estimate(f"stage{stage}_replica{number}"))
                + ("" if published is None else f"; {published[number]}")
                for number in range(len(_REPLICAS))
            ]
            rows.append((str(stage), str(dispatch), *shown))
    title = "percent of each replica's calls by stage; published after the semicolon"
    columns = ("stage", "dispatch", *(f"{name} ({at + 1})" for at, name in enumerate(_REPLICAS)))
    return [Table(title, columns, rows, labels=2)]


def _stage_headline(found: Measured) -> Headline:
    in_turn = _named(found).where(dispatch="in turn")
    scores = [
        more(str(name), _named(found).where(dispatch=name).ratio("fast", in_turn))
        for name in _named(found).levels("dispatch")
        if name != "in turn"
    ]
    what = "share of prompt tokens on the A100 over that with replicas in turn"
    return Headline(what, scores, rival=False)


def _named(found: Measured) -> Measured:
    return found.named("dispatch", _DISPATCH)


_POOLS: Final = ("hetero-1", "hetero-2")
_ALPHAS: Final = tuple(round(0.1 * step, 1) for step in range(11))
_TUNED: Final = "tuned"
_FIXED: Final = "fixed"
# The alpha before the tuning. It must not be the best one, which a tuner without effect would keep.
_START: Final = 0.5
# Queries with which alpha is tuned are others than those that are measured.
_BEFORE: Final = 1000


def _tuning_cells(quick: bool) -> Sequence[Cell]:
    queries = 20 if quick else 100
    found = []
    scenes = [(pool, cache) for cache in (True, False) for pool in _POOLS]
    for pool, cache in scenes[: 1 if quick else None]:
        scene: dict[str, Setting] = {**_SCENE, "pool": pool, "queries": queries, "cache": cache}
        found += cells(SEEDS, case=_TUNED, system=REPRODUCTION, **scene)
        for alpha in _ALPHAS[: 2 if quick else None]:
            found += cells(SEEDS, case=_FIXED, alpha=alpha, system=REPRODUCTION, **scene)
    return found


def measure_tuning(cell: Cell) -> Values:
    """Return the P95 of the latency with a fixed alpha, or with the one that the tuner chooses
    after other queries were served with `_START`: then also `alpha`, the replay's `cpu_s`, and
    `calls`, replayed over all candidates.
    """
    from weft_bench.virtual.journal import tuned_alpha

    case = str(cell["case"])
    settings = tuple(one for one in cell.settings if one[0] != "case")
    figures: dict[str, float] = {}
    if case == _TUNED:
        before = _played(Cell((*settings, ("alpha", _START)), cell.seed + _BEFORE))
        system = SYSTEMS[REPRODUCTION]
        alpha, cpu_s, calls = tuned_alpha(before.at(_SCALE), system.balancer, system.order, _START)
        figures = {"alpha": alpha, "cpu_s": cpu_s, "calls": float(calls)}
        settings = (*settings, ("alpha", alpha))
    return {**_played(Cell(settings, cell.seed)).figures(_SCALE), **figures}


def _tuning_tables(found: Measured) -> Sequence[Table]:
    rows = []
    for pool, cache, at in _scenes(found):
        tuned, best, alpha = _tuned_and_best(at)
        rows.append(
            (
                pool,
                cache,
                *(str(tuned.estimate(name)) for name in ("alpha", "cpu_s", "calls", "latency_p95")),
                str(alpha),
                str(best.estimate("latency_p95")),
                str(tuned.ratio("latency_p95", best)),
            )
        )
    columns = (
        "pool", "cache", "alpha", "CPU s of the replay", "calls replayed", "P95 latency, s",
        "best fixed alpha", "its P95 latency, s", "tuned over best",
    )  # fmt: skip
    title = f"alpha tuned on other queries from {_START:g}, and the best of a full sweep"
    return [Table(title, columns, rows, labels=2)]


def _scenes(found: Measured) -> Iterator[tuple[str, str, Measured]]:
    """Yield the pool and the cache as text, with their cells."""
    for cache, cached in each(found, "cache"):
        for pool, at in each(cached, "pool"):
            yield pool, on(cache), at


def _tuned_and_best(found: Measured) -> tuple[Measured, Measured, float]:
    """Return the cells of the tuned alpha, and of the fixed alpha with the least mean."""
    fixed = found.where(case=_FIXED)
    best = min(fixed.levels("alpha"), key=lambda at: _p95(fixed.where(alpha=at)).middle)
    return found.where(case=_TUNED), fixed.where(alpha=best), float(best)


def _p95(found: Measured) -> Estimate:
    return found.estimate("latency_p95")


def _tuning_plots(found: Measured) -> Sequence[Plot]:
    panels = [
        (f"{pool}, cache {cache}", lines(at.where(case=_FIXED), "alpha", "system", "latency_p95"))
        for pool, cache, at in _scenes(found)
    ]
    return [Plot("alpha", "P95 latency, s", panels)] if panels else []


def _tuning_headline(found: Measured) -> Headline:
    scores = []
    for pool, cache, at in _scenes(found):
        tuned, best, alpha = _tuned_and_best(at)
        scores.append(
            less(f"{pool}, cache {cache} (alpha {alpha})", tuned.ratio("latency_p95", best))
        )
    what = (
        "P95 latency with the tuned alpha over that with the best fixed one, which is chosen after "
        "the fact; less is better"
    )
    return Headline(what, scores, rival=False)


# Goals of this project.
_NEAR_BEST: Final = 1.03
_TUNED_IN_S: Final = 5.0


def _tuning_goals(found: Measured) -> Sequence[Goal]:
    goals = []
    for pool, cache, at in _scenes(found):
        tuned, best, _ = _tuned_and_best(at)
        ratio, scene = tuned.ratio("latency_p95", best), f"{pool}, cache {cache}"
        goals.append(Goal(f"{scene}: P95 latency, tuned over the best:", ratio, _NEAR_BEST))
        goals.append(Goal(f"{scene}: CPU s of a tuning:", tuned.estimate("cpu_s"), _TUNED_IN_S))
    return goals


def _played(cell: Cell) -> Played:
    settings: dict[str, Any] = dict(cell.settings)
    name = settings.pop("system")
    other = {one: settings.pop(one) for one in ("balancer", "alpha") if one in settings}
    scene = Scene(**settings)
    return Played(scene, system_in(scene, name, **other), FIRST_SEED + cell.seed)


_TABLE_NOTES: Final = (NOTES[0], *NOTES[2:])

TABLE_2: Final = Experiment(
    name="hexgen-table-2",
    title="Stages that each replica serves",
    source="HexGen-Flow, section 5.3, Table 2",
    published="with workload-balanced dispatch, the two A100 serve 57.5% of the calls of stage 2 "
    "and 1.4% of stage 1 (sums of shares that are relative to each instance)",
    cells=_stage_cells,
    measure=measure_stages,
    tables=_stage_tables,
    headline=_stage_headline,
    notes=(
        *_TABLE_NOTES,
        "one play each, with deadlines of scale 5; the paper's third instance, I3, is the A6000, "
        "its fourth the L40",
    ),
    code=CODE,
    first_seed=FIRST_SEED,
    order="slack",
)
TABLE_4: Final = Experiment(
    name="hexgen-table-4",
    title="Tuning the weight of speed over load",
    source="HexGen-Flow, section 5.4, Table 4",
    published="1.9 to 3.1 s a window of 100 s, on parallel processes",
    cells=_tuning_cells,
    measure=measure_tuning,
    tables=_tuning_tables,
    plots=_tuning_plots,
    notes=(
        *_TABLE_NOTES,
        "the gateway's tuner replays the last 2,000 calls of 100 queries that were served with "
        f"alpha {_START:g}, from the fits of the engines, in its own process; the P95 is of 100 "
        "other queries with the alpha that it chose",
        "CPU time of the replay's process is measured, all else is simulated",
    ),
    headline=_tuning_headline,
    goals=_tuning_goals,
    code=(*CODE, "gateway/weft_gateway/tuning"),
    first_seed=FIRST_SEED,
    order="urgency",
)
