"""HexGen-Flow when a peak of load ends: how long queries are late after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft_bench.studies.cells import Cell, Measured, Setting, Values, cells
from weft_bench.studies.experiment import Experiment, Goal, Headline, Table, more
from weft_bench.studies.hexgen import (
    FIRST_SEED,
    OURS,
    REPRODUCTION,
    Played,
    Scene,
    parts,
    system_in,
)
from weft_bench.studies.hexgen_pools import CODE, NOTES, SEEDS
from weft_bench.studies.show import Shown, mean, table

# The factors of the paper's shift, 5 to 20 to 5 queries a second, on a load that the pool can serve
# before and after the peak.
_SCENE: Final[Mapping[str, Setting]] = {
    "trace": "text2sql-3",
    "pool": "hetero-1",
    "load": 0.8,
    "shift": "0.5,2,0.5,0.5",
    "cache": True,
}
_SYSTEMS: Final = ("vllm", "ray", REPRODUCTION, OURS)
# Deadlines that almost all queries meet before the peak.
_SCALE: Final = 4.0
# A window of the paper at low rates, seconds.
WINDOW_S: Final = 100.0
# A goal of this project: of the attainment one window after the peak, over that before it.
_RECOVERED: Final = 0.95


def _cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for system in (_SYSTEMS[-2:] if quick else _SYSTEMS)
        for cell in cells(SEEDS, system=system, queries=60 if quick else 200, **_SCENE)
    ]


def measure(cell: Cell) -> Values:
    """Return the attainment of the queries that arrive `before`, in the `peak`, in the first window
    after it, `first`, and `later`. The settings are those of a `Scene` and a system. Raises the
    errors of `play_programs`.
    """
    settings: dict[str, Any] = dict(cell.settings)
    name, seed = str(settings.pop("system")), FIRST_SEED + cell.seed
    scene = Scene(**settings)
    played = Played(scene, system_in(scene, name), seed)
    begin_s, rise_s, fall_s, *_ = parts(scene, seed)
    spans = {
        "before": (begin_s, rise_s),
        "peak": (rise_s, fall_s),
        "first": (fall_s, fall_s + WINDOW_S),
        "later": (fall_s + WINDOW_S, float("inf")),
    }
    in_time: dict[str, list[bool]] = {name: [] for name in spans}
    for query in played.at(_SCALE).programs:
        for name, (low_s, high_s) in spans.items():
            if low_s <= query.arrival_s < high_s:
                met = query.response_s <= _SCALE * played.alone[query.id]
                in_time[name].append(met)
    return {name: sum(met) / len(met) for name, met in in_time.items() if met}


def _tables(found: Measured) -> Sequence[Table]:
    columns: dict[str, Shown] = {
        "before the peak": mean("before"),
        "in the peak": mean("peak"),
        "first window after it": mean("first"),
        "later": mean("later"),
    }
    title = f"attainment of deadlines of {_SCALE:g} times the time alone, by the query's arrival"
    return [table(found, title, {"system": "system"}, columns)]


def _goals(found: Measured) -> Sequence[Goal]:
    ratio = found.where(system=OURS).estimate("later")
    what = f"{OURS}: attainment of queries that arrive {WINDOW_S:g} s after the peak and later:"
    return [Goal(what, ratio, _RECOVERED, less=False)]


def _headline(found: Measured) -> Headline:
    ours = found.where(system=OURS)
    scores = [
        more(f"first window ({rival})", ours.ratio("first", found.where(system=rival)))
        for rival in found.levels("system")
        if rival != OURS
    ]
    what = "attainment of queries that arrive within a window after the peak over that of a rival"
    return Headline(f"{what}; more is better", scores)


RECOVERY: Final = Experiment(
    name="hexgen-recovery",
    title="Queries in time after a peak of load",
    source="this project; the shift is that of HexGen-Flow, section 5.2",
    published="",
    cells=_cells,
    measure=measure,
    tables=_tables,
    notes=(
        *NOTES,
        f"a window is {WINDOW_S:g} s, as the paper's at 0.5 and 1 query/s; the load is 0.4, 1.6, "
        "0.4 and 0.4 of the pool's capacity in equal parts of the arrivals' time",
    ),
    headline=_headline,
    code=CODE,
    first_seed=FIRST_SEED,
    order="slack",
    goals=_goals,
)
