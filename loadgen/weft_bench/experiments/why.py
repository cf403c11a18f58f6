"""Why an order wins: by whom it serves first, or by what is still cached when it serves them.

Every order is played in three worlds: with the cache of an engine, which is short; with KV blocks
without end, so that all orders find the same; and with the prefix cache off, so that none finds
anything. What an order gains in the last two is order alone. Each world has a load of its own under
which calls wait when first come is first served, since the worlds differ in what they bear; ratios
are to that order in the same world. Programs of the middle of the arrivals are looked at, not
those that fill or drain the engine. No program here has threads side by side, where atlas and plas
differ: atlas is left out for that, and `urgency`, which needs deadlines. Ours is played once more
without being told when programs end, where the cache is short: elsewhere there is nothing to free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Final

from weft_engine.wire import ORDER_NAMES

from weft_bench.experiments.cells import Cell, Estimate, Measured, Setting, cells
from weft_bench.experiments.experiment import Experiment, Plot, Series, Table
from weft_bench.experiments.headline import Headline, less
from weft_bench.experiments.simulating import OURS
from weft_bench.experiments.worlds import ENDLESS, NONE, SHORT, UNTOLD, WORLDS, measure

_BASELINE: Final = "fcfs"
_LEFT_OUT: Final = ("atlas", "urgency")
ORDERS: Final = tuple(name for name in ORDER_NAMES if name not in _LEFT_OUT)
_QUICK_ORDERS: Final = tuple(name for name in ORDERS if name in ("fcfs", "mlfq", "plas", OURS))
_RIVALS: Final = ("mlfq", "plas")
# Where the cache is short a few long programs decide a seed's mean.
_SEEDS: Final[Mapping[str, int]] = {SHORT: 8, ENDLESS: 3, NONE: 5}
# Workload to programs, and rates by world in programs a second.
_LOADS: Final[Mapping[str, tuple[int, Mapping[str, float]]]] = {
    "sharegpt": (200, {SHORT: 0.35, ENDLESS: 1.0, NONE: 0.25}),
    "bfcl": (130, {SHORT: 0.28, ENDLESS: 1.3, NONE: 0.1}),
    "swe": (80, {SHORT: 0.14, ENDLESS: 0.45, NONE: 0.06}),
}
_QUICK: Final[Mapping[str, tuple[int, Mapping[str, float]]]] = {
    "sharegpt": (60, {SHORT: 1.5, ENDLESS: 4.0, NONE: 1.0}),
}


def _cells(quick: bool) -> Sequence[Cell]:
    settings: list[dict[str, Setting]] = [
        {
            "workload": workload,
            "programs": count,
            "world": world,
            "rate": rates[world],
            "order": order,
        }
        for workload, (count, rates) in (_QUICK if quick else _LOADS).items()
        for world in WORLDS
        for order in (*(_QUICK_ORDERS if quick else ORDERS), UNTOLD)
        if order != UNTOLD or world == SHORT
    ]
    seeds = {world: 3 if quick else _SEEDS[world] for world in WORLDS}
    return [cell for one in settings for cell in cells(seeds[str(one["world"])], **one)]


def _tables(found: Measured) -> Sequence[Table]:
    tables = []
    for workload in found.levels("workload"):
        at = found.where(workload=workload)
        rows = []
        for order in at.levels("order"):
            row = [str(order)]
            for world in WORLDS:
                one = at.where(world=world, order=order)
                row += [
                    str(one.estimate("latency")),
                    str(one.ratio("latency", at.where(world=world, order=_BASELINE))),
                ]
                row += [] if world == NONE else [str(one.estimate("hit_rate"))]
            rows.append(row)
        columns = ["order"]
        for world in WORLDS:
            columns += [f"{world}: latency, s", "over fcfs's"]
            columns += [] if world == NONE else ["hit rate"]
        rates = ", ".join(f"{at.where(world=w).levels('rate')[0]} with {w}" for w in WORLDS)
        tables.append(Table(f"{workload}: program latency; {rates} a second", columns, rows))
    loads = [
        (
            str(workload),
            world,
            *(
                str(found.where(workload=workload, world=world, order=_BASELINE).estimate(figure))
                for figure in ("waiting", "loaded")
            ),
        )
        for workload in found.levels("workload")
        for world in WORLDS
    ]
    columns = ["workload", "world", "waited", "ended under load"]
    title = "fcfs: the share of latency that programs waited, and of programs that met no drain"
    return [_beside(found), *tables, Table(title, columns, loads, labels=2)] if loads else []


def _beside(found: Measured) -> Table:
    """Ours, told and not, over its rivals where the cache is short, on the same programs."""
    rows = []
    for workload in found.levels("workload"):
        at = found.where(workload=workload, world=SHORT)
        for order, rival in ((one, two) for one in (OURS, UNTOLD) for two in _RIVALS):
            ours, theirs = at.where(order=order), at.where(order=rival)
            pairs = [
                (mine, theirs.series("latency").get(seed))
                for seed, mine in ours.series("latency").items()
            ]
            met = [(mine, other) for mine, other in pairs if other is not None]
            better = sum(mine < other for mine, other in met)
            ratios = (str(ours.ratio(f, theirs)) for f in ("latency", "latency_p95"))
            rows.append((str(workload), order, rival, *ratios, f"{better} of {len(met)}"))
    title = f"{OURS} over others where the cache is short, on the same programs"
    columns = ("workload", "order", "over", "latency", "p95", "faster in, seeds")
    return Table(title, columns, rows, labels=3)


def _findings(found: Measured) -> Sequence[str]:
    return [
        said
        for workload in found.levels("workload")
        for said in (
            f"{workload}: {_ours(found.where(workload=workload))}",
            f"{workload}: {_others(found.where(workload=workload))}",
        )
    ]


def _gain(at: Measured, order: str, world: str, over: str = _BASELINE) -> Estimate:
    """An order's latency over another's in one world."""
    return at.where(world=world, order=order).ratio("latency", at.where(world=world, order=over))


def _ours(at: Measured) -> str:
    """What ours gains, of what, and over whom, in words."""
    short = _gain(at, OURS, SHORT)
    hits, before = (
        at.where(world=SHORT, order=order).estimate("hit_rate") for order in (OURS, _BASELINE)
    )
    rivals = ", ".join(f"{_gain(at, OURS, SHORT, rival)} of {rival}'s" for rival in _RIVALS)
    told = (
        f"with a short cache {OURS} takes {short} of fcfs's latency{_verdict(at, OURS)}, {rivals}; "
        f"hit rate {hits}, fcfs's {before}"
    )
    if not at.where(world=SHORT, order=UNTOLD):
        return told
    return (
        f"{told}. Not told when programs end it takes {_gain(at, UNTOLD, SHORT)} of "
        f"fcfs's{_verdict(at, UNTOLD)}"
    )


def _verdict(at: Measured, order: str) -> str:
    """What follows for an order where the cache is short."""
    short = _gain(at, order, SHORT)
    if short.above(1):
        return " (worse)"
    if not short.below(1):
        return " (no gain shown)"
    return f" ({_part(short, _gain(at, OURS if order == UNTOLD else order, ENDLESS))})"


def _part(short: Estimate, alone: Estimate) -> str:
    """How much of a gain with a short cache the order alone has brought, measured by logarithms."""
    if not alone.below(1):
        return "the cache's gain: with an endless one the order alone shows none"
    part = log(alone.middle) / log(short.middle)
    if part >= 1:
        return "the order's gain alone: with an endless cache it is as great"
    return f"of the gain {100 * part:.0f}% is the order's alone, the rest the cache's"


def _others(at: Measured) -> str:
    """Who else is better or worse than first come, first served, where the cache is short."""
    gains = {
        str(order): _gain(at, str(order), SHORT)
        for order in at.levels("order")
        if order not in (_BASELINE, OURS, UNTOLD)
    }
    faster = [f"{order} ({gain})" for order, gain in gains.items() if gain.below(1)]
    slower = [f"{order} ({gain})" for order, gain in gains.items() if gain.above(1)]
    return (
        f"of the other orders, shown to be faster than fcfs with a short cache: {_listed(faster)}; "
        f"slower: {_listed(slower)}"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"


def _plots(found: Measured) -> Sequence[Plot]:
    panels = []
    for workload in found.levels("workload"):
        at = found.where(workload=workload)
        lines = [
            Series(
                str(order),
                list(range(len(WORLDS))),
                [
                    at.where(world=world, order=order).ratio(
                        "latency", at.where(world=world, order=_BASELINE)
                    )
                    for world in WORLDS
                ],
            )
            for order in at.levels("order")
        ]
        panels.append((str(workload), lines))
    worlds = ", ".join(f"{number}: {world}" for number, world in enumerate(WORLDS))
    return [Plot(worlds, "latency over fcfs's", panels)] if panels else []


def _headline(found: Measured) -> Headline:
    scores = []
    for workload in found.levels("workload"):
        at = found.where(workload=workload, world=SHORT)
        for ours, name in ((OURS, str(workload)), (UNTOLD, f"{workload}, ends not told")):
            ratio = at.where(order=ours).ratio("latency", at.where(order=_BASELINE))
            scores.append(less(name, ratio))
    return Headline("program latency over fcfs's with a short cache; less is better", scores)


EXPERIMENT: Final = Experiment(
    name="why",
    title="Why an order wins: by the order, or by what is still cached",
    source="ours; Agentix, section 6, does not tell them apart",
    published="",
    cells=_cells,
    measure=measure,
    tables=_tables,
    plots=_plots,
    findings=_findings,
    headline=_headline,
)
