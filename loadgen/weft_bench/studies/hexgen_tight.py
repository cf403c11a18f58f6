"""HexGen-Flow's queries with tight targets on engines with few slots, near the capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft_bench.studies.cells import Cell, Measured, Setting, cells
from weft_bench.studies.experiment import Experiment, Goal, Headline, Table, more
from weft_bench.studies.hexgen import FIRST_SEED, OURS, REPRODUCTION, measure
from weft_bench.studies.hexgen_pools import CODE, NOTES, SEEDS
from weft_bench.studies.show import Shown, mean, over, table

# The engines and targets of the generated queries in docs/results/peers.md.
_SCENE: Final[Mapping[str, Setting]] = {
    "trace": "text2sql-3",
    "pool": "8b",
    "slots": 8,
    "load": 0.95,
    "cache": True,
    "scale": 2.0,
}
_SYSTEMS: Final = ("vllm", "ray", REPRODUCTION, "weft", OURS)


def _cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for system in (_SYSTEMS[2:] if quick else _SYSTEMS)
        for cell in cells(SEEDS, system=system, queries=30 if quick else 144, **_SCENE)
    ]


def _tables(found: Measured) -> Sequence[Table]:
    columns: dict[str, Shown] = {
        "attained": mean("attained"),
        f"over {REPRODUCTION}'s": over("attained", system=REPRODUCTION),
        "P95 of the slowdown": mean("slowdown_p95"),
        "mean latency, s": mean("latency"),
        "queries/s": mean("throughput"),
    }
    title = "queries with targets of twice their time alone, at 0.95 of the capacity"
    return [table(found, title, {"system": "system"}, columns)]


# A goal of this project, over the paper's system.
_MORE: Final = 1.15


def _goals(found: Measured) -> Sequence[Goal]:
    ours, theirs = (found.where(system=name) for name in (OURS, REPRODUCTION))
    what = f"attainment over that of {REPRODUCTION}:"
    return [Goal(what, ours.ratio("attained", theirs), _MORE, less=False)]


def _headline(found: Measured) -> Headline:
    ours = found.where(system=OURS)
    scores = [
        more(str(rival), ours.ratio("attained", found.where(system=rival)))
        for rival in found.levels("system")
        if rival != OURS
    ]
    return Headline("attainment over that of each rival; more is better", scores)


TIGHT: Final = Experiment(
    name="hexgen-tight",
    title="Tight targets on engines with few slots",
    source="this project",
    published="",
    cells=_cells,
    measure=measure,
    tables=_tables,
    notes=(
        *NOTES,
        "two `8b-a100` and two `8b-l40` with 8 slots; the middle half of the queries counts",
    ),
    headline=_headline,
    code=CODE,
    first_seed=FIRST_SEED,
    order="slack",
    goals=_goals,
)
