"""Forecasts and admission of the deadline scheduler, each switched: deadlines of a fixed scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft_bench.studies.cells import Cell, Measured, Setting, Values, cells
from weft_bench.studies.experiment import Experiment, Goal, Headline, Table, more
from weft_bench.studies.hexgen import FIRST_SEED, OURS, Played, Scene, system_in
from weft_bench.studies.hexgen_pools import CODE, NOTES, SEEDS
from weft_bench.studies.show import Shown, each, mean, over, table
from weft_bench.virtual.clients import Client

_SCENE: Final[Mapping[str, Setting]] = {"trace": "text2sql-3", "pool": "hetero-1", "rate": 0.5}
# With a prefix cache and without: those of `hexgen-limit`, and a tighter one.
_SCALES: Final[Mapping[bool, tuple[float, ...]]] = {True: (3.0, 4.0), False: (8.0,)}
_WHOLE: Final = OURS
_NO_FORECAST: Final = f"{OURS}, no later call expected"
_REFUSES: Final = f"{OURS}, refuses"
_PARTS: Final = (_WHOLE, _NO_FORECAST, _REFUSES)


def _cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for cache, scales in _SCALES.items()
        for scale in scales
        for part in _PARTS
        for cell in cells(
            SEEDS, part=part, cache=cache, scale=scale, queries=30 if quick else 100, **_SCENE
        )
    ]


def measure(cell: Cell) -> Values:
    """Return the figures of a cell. Its settings are those of a `Scene`, a `scale` and a `part`.
    Raises the errors of `play_programs`.
    """
    settings: dict[str, Any] = dict(cell.settings)
    part, scale = settings.pop("part"), settings.pop("scale")
    scene = Scene(**settings)
    system = system_in(scene, OURS, refuse=part == _REFUSES)
    # A client that states 0 later calls for each call takes the forecast's place.
    client = Client("all", stages_left=0)
    stated = (lambda place: (client, 1.0)) if part == _NO_FORECAST else None
    return Played(scene, system, FIRST_SEED + cell.seed, stated).figures(scale)


def _tables(found: Measured) -> Sequence[Table]:
    columns: dict[str, Shown] = {
        "attained": mean("attained"),
        f"over {_WHOLE}'s": over("attained", part=_WHOLE),
        "queries in time a second": mean("goodput"),
        "mean latency of the served, s": mean("latency"),
    }
    title = "attainment of all queries, refused ones included, with deadlines of a fixed scale"
    down = {"cache": "cache", "scale": "scale", "part": "part"}
    return [table(found, title, down, columns)]


def _goals(found: Measured) -> Sequence[Goal]:
    """Return the goals that forecasts and admission help."""
    goals = []
    for scene, at in each(found, "cache", "scale"):
        whole = at.where(part=_WHOLE)
        for name, better, worse in (
            ("forecasts", whole, at.where(part=_NO_FORECAST)),
            ("refusals", at.where(part=_REFUSES), whole),
        ):
            what = f"{scene} (cache, scale): attainment with {name} over that without:"
            goals.append(Goal(what, better.ratio("attained", worse), 1.0, less=False))
    return goals


def _headline(found: Measured) -> Headline:
    scores = []
    for scene, at in each(found, "cache", "scale"):
        whole = at.where(part=_WHOLE)
        without, refuses = at.where(part=_NO_FORECAST), at.where(part=_REFUSES)
        scores.append(more(f"{scene} (cache, scale): forecasts", whole.ratio("attained", without)))
        scores.append(more(f"{scene} (cache, scale): refusals", refuses.ratio("attained", whole)))
    return Headline("attainment with a part over that without; more is better", scores, rival=False)


SWITCHES: Final = Experiment(
    name="hexgen-9-switches",
    title="Forecasts and admission of the deadline scheduler",
    source="this project",
    published="",
    cells=_cells,
    measure=measure,
    tables=_tables,
    notes=(
        *NOTES,
        "no later call expected: each call says that none follows, so its budget is the time left",
        "refuses: the class has `late: refuse`; a refused query is not attained",
    ),
    headline=_headline,
    code=CODE,
    first_seed=FIRST_SEED,
    order="slack",
    goals=_goals,
)
