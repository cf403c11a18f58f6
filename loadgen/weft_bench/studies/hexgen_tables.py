"""Tables of HexGen-Flow: the stages that each replica serves, and the tuning of alpha."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft_bench.studies.cells import Cell, Measured, Setting, Values, cells
from weft_bench.studies.experiment import Experiment, Headline, Table, more
from weft_bench.studies.hexgen import (
    FIRST_SEED,
    OURS,
    REPRODUCTION,
    Played,
    Scene,
    system_in,
)
from weft_bench.studies.hexgen_pools import CODE, NOTES, SEEDS

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
