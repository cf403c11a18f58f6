"""Fairness between tenants under HexGen-Flow's deadlines: two tenants with different deadlines, ten
with equal ones, and ten of which one lies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft_bench.stats import mean as mean_of
from weft_bench.stats import percentile
from weft_bench.studies.cells import Cell, Measured, Setting, Values, cells
from weft_bench.studies.experiment import Experiment, Goal, Headline, Score, Table, less, more
from weft_bench.studies.hexgen import (
    ATTAINED,
    FIRST_SEED,
    OURS,
    REPRODUCTION,
    SYSTEMS,
    Played,
    Scene,
    system_in,
)
from weft_bench.studies.hexgen_pools import CODE, NOTES, SEEDS
from weft_bench.studies.show import Shown, each, mean, over, table, under
from weft_bench.virtual.clients import Client, Shared

# How the engines of a system treat tenants. In the others, they do not know them.
_SHARED: Final[Mapping[str, Shared]] = {
    OURS: Shared.TENANTS,
    "weft": Shared.TENANTS,
    "vtc": Shared.CLIENTS,
}
# The factor on the deadlines of the second of two tenants.
_LOOSER: Final = 2.0
# The factor on the deadlines that the lying tenant states, and the later calls that it states.
_LIES: Final[Mapping[str, tuple[float, int | None]]] = {
    "none": (1.0, None),
    "half of the deadline": (0.5, None),
    "a quarter of the deadline": (0.25, None),
    "30 later calls": (1.0, 30),
}
_LIAR: Final = "tenant-0"
# The liar has a tenth of the queries, so its figures need more seeds.
_LIAR_SEEDS: Final = 4
_TEN: Final = 10
_FEW: Final = (OURS, REPRODUCTION, "vtc", "vllm")
# The systems of each lie. Those that do not read deadlines cannot be lied to.
_LIED_TO: Final[Mapping[str, Sequence[str]]] = {
    "none": _FEW,
    "half of the deadline": (OURS, REPRODUCTION),
    "a quarter of the deadline": (OURS,),
    "30 later calls": (OURS,),
}
_LIED: Final = (OURS, REPRODUCTION)
# The scene with two tenants that all systems play.
_ALL: Final = "burst"
_QUERIES: Final[Mapping[str, Setting]] = {"trace": "text2sql-3", "pool": "hetero-1"}
# Settings of each scene with two tenants.
_TWO: Final[Mapping[str, Mapping[str, Setting]]] = {
    "burst": {"rate": 0.5, "cache": True, "scale": 4.0},
    "burst without cache": {"rate": 0.5, "cache": False, "scale": 8.0},
    "steady": {"load": 0.75, "cache": True, "scale": 3.0, "queries": 120},
}
_TEN_SCENE: Final[Mapping[str, Setting]] = {"rate": 0.5, "cache": True, "scale": 5.0}


def _cells(quick: bool) -> Sequence[Cell]:
    if quick:
        few: dict[str, Setting] = {**_QUERIES, **_TEN_SCENE, "queries": 30, "tenants": _TEN}
        return [
            cell
            for lie in list(_LIES)[:2]
            for cell in cells(SEEDS, case="ten", lie=lie, system=OURS, **few)
        ]
    ten = [
        cell
        for lie in _LIES
        for system in _LIED_TO[lie]
        for cell in cells(
            _LIAR_SEEDS,
            case="ten",
            tenants=_TEN,
            lie=lie,
            system=system,
            **_QUERIES,
            **_TEN_SCENE,
        )
    ]
    two = [
        cell
        for case, scene in _TWO.items()
        for system in (SYSTEMS if case == _ALL else _FEW)
        for cell in cells(
            SEEDS, case=case, tenants=2, lie="none", system=system, **_QUERIES, **scene
        )
    ]
    return [*ten, *two]


def measure(cell: Cell) -> Values:
    """Return the figures of a cell: Jain's index of the tenants' attainment and of their mean
    slowdown; attained, p95 and slowdown of the first tenant (`first_...`) and of the others. The
    P95 of the slowdown is relative to a tenant's own factor on deadlines.
    """
    settings: dict[str, Any] = dict(cell.settings)
    name, scale, tenants = settings.pop("system"), settings.pop("scale"), settings.pop("tenants")
    factor, stages_left = _LIES[settings.pop("lie")]
    del settings["case"]
    scene = Scene(**settings)
    system = system_in(scene, name, shared=_SHARED.get(name, Shared.UNKNOWN))
    own = [_LOOSER if tenants == 2 and number else 1.0 for number in range(tenants)]

    def client(place: int) -> tuple[Client, float]:
        number = place % tenants
        if number:
            return Client(f"tenant-{number}"), own[number]
        return Client(_LIAR, stages_left=stages_left), factor

    played = Played(scene, system, FIRST_SEED + cell.seed, client)
    slowdowns: dict[str, list[float]] = defaultdict(list)
    for program in played.counted(scale):
        tenant = played.clients[program.id].tenant
        relative = own[int(tenant.rpartition("-")[2])]
        slowdowns[tenant].append(program.response_s / played.alone[program.id] / relative)
    attained = {
        tenant: sum(one <= scale for one in found) / len(found)
        for tenant, found in slowdowns.items()
    }
    others = [one for tenant, found in slowdowns.items() if tenant != _LIAR for one in found]
    first = slowdowns[_LIAR]
    return {
        "jain": jain(list(attained.values())),
        "jain_slowdown": jain([mean_of(found) for found in slowdowns.values()]),
        "first_attained": attained[_LIAR],
        "first_p95": percentile(first, ATTAINED),
        "first_slowdown": mean_of(first),
        "others_attained": sum(one <= scale for one in others) / len(others),
        "others_p95": percentile(others, ATTAINED),
        "others_slowdown": mean_of(others),
    }


def jain(values: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 if all are equal, 1/n if one has all. All zero is equal."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def _two(found: Measured) -> Measured:
    return Measured({c: v for c, v in found.values.items() if c["tenants"] == 2})


def _ten(found: Measured) -> Measured:
    return found.where(tenants=_TEN)


def _tables(found: Measured) -> Sequence[Table]:
    two: dict[str, Shown] = {
        "Jain of attainment": mean("jain"),
        "attained, tight": mean("first_attained"),
        "attained, loose": mean("others_attained"),
        "P95, tight": mean("first_p95"),
        f"{OURS}'s over its": under("first_p95", system=OURS),
        "P95, loose": mean("others_p95"),
        f"{OURS}'s over its, loose": under("others_p95", system=OURS),
    }
    ten: dict[str, Shown] = {
        "Jain of attainment": mean("jain"),
        "Jain of mean slowdown": mean("jain_slowdown"),
        "attained": mean("others_attained"),
    }
    lies: dict[str, Shown] = {
        "liar's mean slowdown": mean("first_slowdown"),
        "honest over lying": _gain,
        "liar attained": mean("first_attained"),
        "others' mean slowdown": mean("others_slowdown"),
        "over that without a lie": over("others_slowdown", lie="none"),
        "others attained": mean("others_attained"),
    }
    lied = Measured({c: v for c, v in _ten(found).values.items() if c["system"] in _LIED})
    title = (
        "ten tenants, of which one lies; honest over lying: the liar's mean slowdown without the "
        "lie over that with it, above 1 is a gain"
    )
    return [
        table(
            _two(found),
            "two tenants, one with deadlines twice as long; P95: of the slowdown, over a tenant's "
            "own factor",
            {"scene": "case", "system": "system"},
            two,
        ),
        table(
            _ten(found).where(lie="none"),
            "ten honest tenants in a burst",
            {"system": "system"},
            ten,
        ),
        table(lied, title, {"system": "system", "lie": "lie"}, lies),
    ]


def _gain(one: Measured, group: Measured) -> object:
    return group.where(lie="none").ratio("first_slowdown", one)


# Goals of this project: of Jain's index, and of the liar's gain.
_FAIR: Final = 0.99
_GAIN: Final = 1.02


def _goals(found: Measured) -> Sequence[Goal]:
    ours = found.where(system=OURS)
    scenes = {
        **{f"two tenants, {case}": at for case, at in each(_two(ours), "case")},
        "ten honest tenants": _ten(ours).where(lie="none"),
    }
    fair = [
        Goal(f"{scene}: Jain's index of attainment", at.estimate("jain"), _FAIR, less=False)
        for scene, at in scenes.items()
        if at
    ]
    honest = _ten(ours).where(lie="none")
    gains = [
        Goal(f"{lie}: the liar's honest over lying slowdown", ratio, _GAIN)
        for lie, at in each(_ten(ours), "lie")
        if lie != "none"
        for ratio in [honest.ratio("first_slowdown", at)]
    ]
    return [*fair, *gains]


def _headline(found: Measured) -> Headline:
    scores: list[Score] = []
    for case, at in each(_two(found), "case"):
        for rival in at.levels("system"):
            if rival != OURS:
                ratio = at.where(system=OURS).ratio("jain", at.where(system=rival))
                scores.append(more(f"two tenants, {case} ({rival})", ratio))
    for lie, at in each(_ten(found).where(system=OURS), "lie"):
        if lie != "none":
            honest = _ten(found).where(system=OURS, lie="none")
            scores.append(less(f"liar's gain: {lie}", honest.ratio("first_slowdown", at)))
    what = (
        "Jain's index of two tenants' attainment over that of each rival, more is better; and a "
        "liar's mean slowdown without the lie over that with it, at most 1.02 is the goal"
    )
    return Headline(what, scores, "0.98 (Jain)")


FIGURE_8: Final = Experiment(
    name="hexgen-8",
    title="Fairness between tenants with deadlines",
    source="HexGen-Flow, section 5.2, Figure 8",
    published="P95 27.9 to 35.7% lower for two users with different SLOs; Jain's index of their "
    "attainment is 0.98",
    cells=_cells,
    measure=measure,
    tables=_tables,
    notes=(
        NOTES[0],
        *NOTES[2:],
        f"tenants have shares of time, slots and memory under {OURS} and weft; a tenant is the "
        "client that vtc counts tokens for; the other systems do not know tenants",
        "deadlines and stated calls are used as stated: limits of an SLO class, which clamp them, "
        "are off",
        "each cell is one play with deadlines of one scale",
    ),
    headline=_headline,
    code=CODE,
    first_seed=FIRST_SEED,
    order="slack",
    goals=_goals,
)
