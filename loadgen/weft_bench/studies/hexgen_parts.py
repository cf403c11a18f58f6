"""The parts of HexGen-Flow and of Weft's answer to it: each one off, and the weight alpha."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft_bench.studies.cells import Cell, Measured, Setting, cells
from weft_bench.studies.experiment import Experiment, Goal, Headline, Plot, Table, less
from weft_bench.studies.hexgen import FIRST_SEED, OURS, REPRODUCTION, measure
from weft_bench.studies.hexgen_pools import CODE, NOTES, SEEDS, on
from weft_bench.studies.show import Shown, each, lines, mean, over, table

_TRACE: Final = "text2sql-3"
_POOLS: Final = ("hetero-1", "hetero-2")
# Settings of each row. The first rows are the paper's ablation.
_PARTS: Final[Mapping[str, Mapping[str, Setting]]] = {
    "hexgen": {"system": REPRODUCTION},
    "hexgen, in turn": {"system": REPRODUCTION, "balancer": "round_robin"},
    "hexgen, fcfs": {"system": REPRODUCTION, "order": "fcfs"},
    "flow": {"system": OURS},
    "flow, by homes": {"system": OURS, "balancer": "locality"},
    "flow, by work": {"system": OURS, "balancer": "work"},
    "flow, resident": {"system": OURS, "order": "resident"},
    "flow, urgency": {"system": OURS, "order": "urgency"},
    "flow, no tags": {"system": OURS, "tags": False},
}
# Without a prefix cache, homes and tags have no effect on it.
_UNCACHED_PARTS: Final = (
    "hexgen", "hexgen, in turn", "hexgen, fcfs", "flow", "flow, by work", "flow, resident"
)  # fmt: skip
_QUICK_PARTS: Final = ("hexgen", "hexgen, in turn", "flow")


def _part_cells(quick: bool) -> Sequence[Cell]:
    queries = 30 if quick else 100
    parts: Mapping[bool, Sequence[str]] = {True: tuple(_PARTS), False: _UNCACHED_PARTS}
    if quick:
        parts = {True: _QUICK_PARTS}
    return [
        cell
        for cache, names in parts.items()
        for part in names
        for cell in cells(
            SEEDS,
            trace=_TRACE,
            pool=_POOLS[0],
            rate=0.5,
            cache=cache,
            **({"queries": queries} if quick else {}),
            **_PARTS[part],
        )
    ]


def _named(found: Measured) -> Measured:
    return found.named("part", _PARTS)


def _part_tables(found: Measured) -> Sequence[Table]:
    columns: dict[str, Shown] = {
        "P95": mean("p95_scale"),
        "P95 over hexgen's": over("p95_scale", part="hexgen"),
        "P95 over flow's": over("p95_scale", part="flow"),
        "queries/s": mean("throughput"),
        "mean slowdown": mean("slowdown"),
        "hit rate": mean("hit_rate"),
        "on A100": mean("fast"),
    }
    title = "least SLO scale with 95% attainment (P95), each part off; text2sql-3 at 0.5/s"
    down = {"pool": "pool", "cache": "cache", "part": "part"}
    return [table(_named(found), title, down, columns)]


def _part_headline(found: Measured) -> Headline:
    scores = []
    for scene, at in each(_named(found), "pool", "cache"):
        for ours in ("hexgen", "flow"):
            base = at.where(part=ours)
            for part in at.levels("part"):
                if part != ours and str(part).startswith(ours):
                    ratio = base.ratio("p95_scale", at.where(part=part))
                    scores.append(less(f"{scene} (cache): {part}", ratio))
    what = "least SLO scale with all parts over that with one part off; less is better"
    return Headline(what, scores, "0.52 to 0.90")


def _part_goals(found: Measured) -> Sequence[Goal]:
    """Return the goal of each part of ours: P95 is lower with it."""
    goals = []
    for cache, at in each(_named(found), "cache"):
        for part in at.levels("part"):
            if str(part).startswith(f"{OURS},"):
                ratio = at.where(part=OURS).ratio("p95_scale", at.where(part=part))
                what = f"P95 over that of {part}, prefix cache {on(cache)}:"
                goals.append(Goal(what, ratio, 1.0))
    return goals


_ALPHAS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
# The deadlines of each play, with a prefix cache and without: near the least scales that suffice.
_ALPHA_SCALES: Final[Mapping[bool, float]] = {True: 5.0, False: 8.0}


def _alpha_cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for cache in ((True,) if quick else (True, False))
        for pool in (_POOLS[:1] if quick else _POOLS)
        for alpha in (_ALPHAS[:4:3] if quick else _ALPHAS)
        for cell in cells(
            SEEDS,
            trace=_TRACE,
            pool=pool,
            rate=0.5,
            cache=cache,
            queries=30 if quick else 100,
            system=REPRODUCTION,
            alpha=alpha,
            scale=_ALPHA_SCALES[cache],
        )
    ]


def _alpha_tables(found: Measured) -> Sequence[Table]:
    columns: dict[str, Shown] = {
        "P95 of the slowdown": mean("slowdown_p95"),
        "over alpha 0": over("slowdown_p95", alpha=0.0),
        "attained": mean("attained"),
        "queries/s": mean("throughput"),
        "on A100": mean("fast"),
    }
    title = "P95 of the slowdown by alpha of the balancer `work`, order `urgency`"
    down = {"pool": "pool", "cache": "cache", "alpha": "alpha"}
    return [table(found, title, down, columns)]


def _alpha_plots(found: Measured) -> Sequence[Plot]:
    panels = [
        (
            f"{pool}, cache {'on' if cache == 'True' else 'off'}",
            lines(at, "alpha", "system", "slowdown_p95"),
        )
        for cache, one in each(found, "cache")
        for pool, at in each(one, "pool")
    ]
    return [Plot("alpha", "P95 of the slowdown", panels)] if panels else []


def _alpha_headline(found: Measured) -> Headline:
    scores = []
    for scene, at in each(found, "pool", "cache"):
        rest = [alpha for alpha in at.levels("alpha") if alpha]
        base = at.where(alpha=0.0)
        ratios = [at.where(alpha=alpha).ratio("slowdown_p95", base) for alpha in rest]
        best = min(range(len(rest)), key=lambda place: ratios[place].middle)
        scores.append(less(f"{scene} (cache): alpha {rest[best]}", ratios[best]))
    what = "P95 of the slowdown with the best alpha over that with alpha 0; less is better"
    return Headline(what, scores, "0.86")


FIGURE_9: Final = Experiment(
    name="hexgen-9",
    title="Parts of the deadline scheduler",
    source="HexGen-Flow, section 5.3, Figure 9",
    published="workload-balanced dispatch lowers P95 by 10.5 to 34.8%, the priority queue by up to "
    "48%",
    cells=_part_cells,
    measure=measure,
    tables=_part_tables,
    notes=(*NOTES, "hexgen-9-switches has forecasts and admission"),
    headline=_part_headline,
    goals=_part_goals,
    code=CODE,
    first_seed=FIRST_SEED,
    order="slack",
)
FIGURE_10: Final = Experiment(
    name="hexgen-10",
    title="The weight of speed over load in dispatching",
    source="HexGen-Flow, section 5.4, Figure 10",
    published="the best alpha is 0.2 on Hetero-1 and 0.4 on Hetero-2 for trace 3, there with a P95 "
    "14% below that of alpha 0",
    cells=_alpha_cells,
    measure=measure,
    tables=_alpha_tables,
    plots=_alpha_plots,
    notes=(
        NOTES[0],
        *NOTES[2:],
        "the slowdown is a query's time over its time alone; each alpha is played once, with "
        "deadlines of scale 5, and of scale 8 without a prefix cache",
        "the best alpha of a headline is chosen after the fact",
    ),
    headline=_alpha_headline,
    code=CODE,
    first_seed=FIRST_SEED,
    order="urgency",
)
