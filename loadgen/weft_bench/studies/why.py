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

from weft_bench.stats import mean as average
from weft_bench.stats import percentile
from weft_bench.studies.cells import Cell, Estimate, Measured, Setting, Values, cells
from weft_bench.studies.experiment import Experiment, Headline, Plot, Series, Table, less
from weft_bench.studies.show import Shown, each, mean, table
from weft_bench.studies.simulating import EIGHTH, OURS, Scene, System, play
from weft_bench.virtual.overlap import Overlap
from weft_bench.virtual.window import steady

SHORT: Final = "short cache"
ENDLESS: Final = "endless cache"
NONE: Final = "no cache"
WORLDS: Final = (SHORT, ENDLESS, NONE)
# The order that is ours, where engines are not told when programs end.
UNTOLD: Final = f"{OURS}, ends not told"
# Blocks for all tokens of all programs here, several times over.
_ENDLESS_BLOCKS: Final = 150_000


def measure(cell: Cell) -> Values:
    """The figures of a cell with the settings `workload`, `programs`, `rate`, `world` and `order`
    (one of the engine's, or `UNTOLD`), over the programs of the middle. latency, latency_p95: of
    programs, seconds. waiting: its share that they waited. hit_rate: of their calls. loaded: the
    share of them that ended while others still came. Raises what `play` raises."""
    world = cell.text("world")
    blocks = _ENDLESS_BLOCKS if world == ENDLESS else EIGHTH["kv_blocks"]
    scene = Scene(
        cell.text("workload"),
        int(cell.number("programs")),
        cell.number("rate"),
        slots=EIGHTH["slots"],
        kv_blocks=blocks,
    )
    order = cell.text("order")
    told = order != UNTOLD
    # Nothing but the order and the cache: what is displaced is computed again in every world.
    system = System(
        order if told else OURS, prefix_cache=world != NONE, overlap=Overlap(forget=told)
    )
    found = play(scene, system, cell.seed)
    window = steady(found.programs)
    responses = [program.response_s for program in window.programs]
    names = {program.id for program in window.programs}
    calls = [call for call in found.calls if call.program in names]
    return {
        "latency": average(responses),
        "latency_p95": percentile(responses, 0.95),
        "waiting": sum(program.waiting_s for program in window.programs) / sum(responses),
        "hit_rate": sum(call.cached_tokens for call in calls) / sum(c.prompt_tokens for c in calls),
        "loaded": window.loaded,
    }


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
    tables = [_beside(found)]
    for workload, at in each(found, "workload"):
        columns: dict[str, Shown] = {}
        for world in WORLDS:
            columns[f"{world}: latency, s"] = _in(world, "latency")
            columns[f"{world}: over fcfs's"] = _gain(world)
            if world != NONE:
                columns[f"{world}: hit rate"] = _in(world, "hit_rate")
        columns["the order's part of the gain, %"] = _part
        rates = ", ".join(f"{at.where(world=w).only('rate')} with {w}" for w in WORLDS)
        title = f"{workload}: program latency; {rates} a second"
        tables.append(table(at, title, {"order": "order"}, columns))
    title = "fcfs: the share of latency that programs waited, and of programs that met no drain"
    loads = {"waited": mean("waiting"), "ended under load": mean("loaded")}
    down = {"workload": "workload", "world": "world"}
    return [*tables, table(found.where(order=_BASELINE), title, down, loads)]


def _in(world: str, figure: str) -> Shown:
    """A column: a figure in one world."""
    return lambda one, group: one.where(world=world).estimate(figure)


def _gain(world: str) -> Shown:
    """A column: the latency over that of first come, first served in the same world."""
    return lambda one, group: _over(one, group.where(order=_BASELINE), world)


def _over(one: Measured, baseline: Measured, world: str, figure: str = "latency") -> Estimate:
    return one.where(world=world).ratio(figure, baseline.where(world=world))


def _part(one: Measured, group: Measured) -> str:
    """How much of a gain with a short cache the order alone brings: its gain with an endless cache,
    by logarithms. A dash where the intervals show no gain with a short cache."""
    # An order that is not told when programs end orders as ours does.
    name = str(one.only("order"))
    alone = group.where(order=OURS if name == UNTOLD else name)
    baseline = group.where(order=_BASELINE)
    short, endless = _over(one, baseline, SHORT), _over(alone, baseline, ENDLESS)
    if not short.below(1):
        return "-"
    if not endless.below(1):
        return "0"
    return f"{min(100.0, 100 * log(endless.middle) / log(short.middle)):.0f}"


def _beside(found: Measured) -> Table:
    """Ours, told and not, over its rivals where the cache is short, on the same programs."""
    rows = []
    for workload, at in each(found.where(world=SHORT), "workload"):
        for order, rival in ((one, two) for one in (OURS, UNTOLD) for two in _RIVALS):
            ours, theirs = at.where(order=order), at.where(order=rival)
            others = theirs.series("latency")
            met = [
                (m, others[seed]) for seed, m in ours.series("latency").items() if seed in others
            ]
            better = sum(mine < other for mine, other in met)
            ratios = (str(_over(ours, theirs, SHORT, f)) for f in ("latency", "latency_p95"))
            rows.append((workload, order, rival, *ratios, f"{better} of {len(met)}"))
    title = f"{OURS} over others where the cache is short, on the same programs"
    columns = ("workload", "order", "over", "latency", "p95", "faster in, seeds")
    return Table(title, columns, rows, labels=3)


def _plots(found: Measured) -> Sequence[Plot]:
    panels = [
        (
            workload,
            [
                Series(
                    order,
                    list(range(len(WORLDS))),
                    [_over(one, at.where(order=_BASELINE), world) for world in WORLDS],
                )
                for order, one in each(at, "order")
            ],
        )
        for workload, at in each(found, "workload")
    ]
    worlds = ", ".join(f"{number}: {world}" for number, world in enumerate(WORLDS))
    return [Plot(worlds, "latency over fcfs's", panels)] if panels else []


def _headline(found: Measured) -> Headline:
    scores = [
        less(workload + suffix, _over(at.where(order=ours), at.where(order=_BASELINE), SHORT))
        for workload, at in each(found, "workload")
        for ours, suffix in ((OURS, ""), (UNTOLD, ", ends not told"))
    ]
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
    notes=(
        "the order's part: with an endless cache all orders find the same, so that a gain there is "
        "the order's alone; the rest is the cache's",
    ),
    headline=_headline,
)
