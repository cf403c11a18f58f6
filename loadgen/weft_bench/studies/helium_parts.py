"""Batches of workflows under `weft run` and under the planner with one part left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_bench.studies.cells import Cell, Measured
from weft_bench.studies.experiment import Experiment, Goal, Headline, Table, less
from weft_bench.studies.helium import (
    CODE,
    FIRST_SEED,
    NOTES,
    OURS,
    PLANNER,
    batches,
    measure,
)
from weft_bench.studies.show import each, mean, over, pooled, table

# Of each system: the workflows, and the system with one part left out.
_PARTS: Final = {
    OURS: (
        ("map-reduce", "reflect", "parallel", "trading"),
        ("no merging", "no prompt cache", "no rewrites", "no groups", "no sharing"),
    ),
    PLANNER: (
        ("map-reduce", "reflect", "trading"),
        ("even slices", "no rows", "no order", "no window", "prefixes first", "schedule only"),
    ),
}
# The parts that the paper leaves out, too, with the workflows that have something for them to do.
_REWRITES: Final = (
    ("no merging", ("map-reduce", "trading")),
    ("no prompt cache", ("trading",)),
)


def _cells(quick: bool) -> Sequence[Cell]:
    if quick:
        return batches(("reflect",), (OURS, f"{OURS}, no groups"), rows=12)
    return [
        cell
        for slow in (1.0, 2.0)
        for system, (shapes, parts) in _PARTS.items()
        for cell in batches(shapes, (system, *(f"{system}, {part}" for part in parts)), slow=slow)
    ]


def _systems(found: Measured, whole: str) -> Sequence[str]:
    """Return the measured systems that are `whole` with a change."""
    names = map(str, found.levels("system"))
    return [name for name in names if name.startswith(f"{whole}, ")]


def _of(found: Measured, whole: str) -> Measured:
    """Return the cells of a system and of those that are it with a change."""
    names = {whole, *_systems(found, whole)}
    kept = {
        cell: values
        for cell, values in found.values.items()
        if dict(cell.settings)["system"] in names
    }
    return Measured(kept)


def _tables(found: Measured) -> Sequence[Table]:
    down = {"engine 2": "slow", "workflow": "shape", "system": "system"}
    return [
        table(
            _of(found, whole),
            f"{whole}: time of a batch; engine 2: factor on its costs",
            down,
            {
                "s": mean("seconds"),
                "over the whole": over("seconds", system=whole),
                "hit rate": mean("hit_rate"),
                "calls": mean("calls"),
            },
        )
        for whole in _PARTS
        if _systems(found, whole)
    ]


def _headline(found: Measured) -> Headline:
    scores = [
        less(
            f"engine 2 x {slow} ({part})",
            pooled(at.where(system=whole), "seconds").ratio(
                "seconds", pooled(at.where(system=part), "seconds")
            ),
        )
        for whole in _PARTS
        for slow, at in each(_of(found, whole), "slow")
        for part in _systems(at, whole)
    ]
    what = "time of a batch over that with a part left out, over workflows; less is better"
    # A part that costs more than it gains is no rival: the planner page names it.
    return Headline(what, scores, rival=False)


def _goals(found: Measured) -> Sequence[Goal]:
    """Return the goal of each part of `weft run`: a batch without it takes longer."""
    equal = found.where(slow=1.0)
    rewrites = [
        Goal(
            f"{shape}, {part}: time over that of the whole:",
            at.where(system=f"{OURS}, {part}").ratio("seconds", at.where(system=OURS)),
            1.0,
            less=False,
        )
        for part, shapes in _REWRITES
        for shape in shapes
        if (at := equal.where(shape=shape)).values
    ]
    others = [
        Goal(
            f"{part}, over workflows: time over that of the whole:",
            pooled(equal.where(system=part), "seconds").ratio(
                "seconds", pooled(equal.where(system=OURS), "seconds")
            ),
            1.0,
            less=False,
        )
        for part in (f"{OURS}, no groups", f"{OURS}, no sharing")
        if equal.where(system=part).values
    ]
    return [*rewrites, *others]


TABLE_3: Final = Experiment(
    name="helium-t3",
    title="Parts of weft run and of the planner, on equal and unequal engines",
    source="Helium, Table 3",
    published="time of a batch: without proactive KV +3.55%, without pruning +23.35%, without "
    "prompt cache +13.56%, without cache-aware scheduling +17.66%",
    cells=_cells,
    measure=measure,
    tables=_tables,
    notes=(
        *NOTES,
        "no merging: equal calls of a row are separate calls (pruning in the paper, whose workflow "
        "has no operator without a consumer); no prompt cache: no answers of the day before; no "
        "rewrites: neither; no groups: a row's calls go to any engine; no sharing: an engine "
        "without calls gets none of the other's",
        "planner: even slices: as if both engines were equal; no rows: each row on a random "
        "engine; no order: calls in any order on their engines; no window: all ready calls are "
        "sent at once; prefixes first: static prefixes are sent before all calls; schedule only: "
        "as no sharing",
    ),
    headline=_headline,
    goals=_goals,
    code=CODE,
    order="fcfs",
    first_seed=FIRST_SEED,
)
