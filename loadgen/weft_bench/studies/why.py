"""Why an order wins: through its scheduling, or through what is still cached.

Every order is played in three worlds: with an engine's short cache; with unlimited KV blocks, so
that all orders have the same hits; and with the prefix cache off, so that none has hits. The gain
of an order in the last two is due to scheduling alone. Each world has its own load at which calls
queue under first come, first served, because the worlds differ in capacity. Ratios are to that
order in the same world. Only programs of the middle of the arrivals count, not those of ramp-up and
drain. No program here has parallel threads, so atlas equals plas and is left out. `urgency` needs
deadlines and is left out too. With the short cache, Weft's order is also played without reported
program ends; the other worlds have nothing to free.
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
from weft_bench.virtual.records import steady

SHORT: Final = "short cache"
ENDLESS: Final = "endless cache"
NONE: Final = "no cache"
WORLDS: Final = (SHORT, ENDLESS, NONE)
# Our order on engines that do not receive program ends.
_UNTOLD: Final = ", without program ends"
UNTOLD: Final = OURS + _UNTOLD
# Several times the blocks of all tokens of all programs here.
_ENDLESS_BLOCKS: Final = 150_000


def measure(cell: Cell) -> Values:
    """Return the figures of a cell over the programs of the middle.

    Its settings are `workload`, `programs`, `rate`, `world` and `order` (one of the engine's, or
    `UNTOLD`). latency, latency_p95: of programs, seconds. waiting: share of the latency spent
    waiting. hit_rate: of their calls. loaded: share of them that ended while programs still
    arrived. Raises the errors of `play`.
    """
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
    # Only the order and the cache vary. Preempted calls are recomputed in every world. Residents
    # need eviction by tag, so all orders have it.
    system = System(
        order if told else OURS,
        prefix_cache=world != NONE,
        tags=world != NONE,
        overlap=Overlap(forget=told),
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
# With the short cache, a few long programs determine a seed's mean.
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
        columns["scheduling's share of the gain, %"] = _part
        rates = ", ".join(f"{at.where(world=w).only('rate')} with {w}" for w in WORLDS)
        title = f"{workload}: program latency; {rates} a second"
        tables.append(table(at, title, {"order": "order"}, columns))
    title = "fcfs: share of the latency spent waiting, and share of programs that ended under load"
    loads = {"waited": mean("waiting"), "ended under load": mean("loaded")}
    down = {"workload": "workload", "world": "world"}
    return [*tables, table(found.where(order=_BASELINE), title, down, loads)]


def _ours(found: Measured) -> str:
    """Return our order in these figures: the one that is also played without program ends. Figures
    of an earlier version are of its default."""
    played = map(str, found.levels("order"))
    return next((name.removesuffix(_UNTOLD) for name in played if name.endswith(_UNTOLD)), OURS)


def _in(world: str, figure: str) -> Shown:
    """Return a column with a figure in one world."""
    return lambda one, group: one.where(world=world).estimate(figure)


def _gain(world: str) -> Shown:
    """Return a column with the latency over that of first come, first served in the same world."""
    return lambda one, group: _over(one, group.where(order=_BASELINE), world)


def _over(one: Measured, baseline: Measured, world: str, figure: str = "latency") -> Estimate:
    return one.where(world=world).ratio(figure, baseline.where(world=world))


def _part(one: Measured, group: Measured) -> str:
    """Return the share of a gain with the short cache that is due to scheduling alone, percent.

    This is the logarithm of the gain with the endless cache over that with the short one. A dash if
    the intervals show no gain with the short cache.
    """
    # Without reported program ends, scheduling is the same as ours.
    alone = group.where(order=str(one.only("order")).removesuffix(_UNTOLD))
    baseline = group.where(order=_BASELINE)
    short, endless = _over(one, baseline, SHORT), _over(alone, baseline, ENDLESS)
    if not short.below(1):
        return "-"
    if not endless.below(1):
        return "0"
    return f"{min(100.0, 100 * log(endless.middle) / log(short.middle)):.0f}"


def _beside(found: Measured) -> Table:
    """Compare Weft, with and without program ends, with its rivals on the short cache."""
    rows, best = [], _ours(found)
    for workload, at in each(found.where(world=SHORT), "workload"):
        for order, rival in ((one, two) for one in (best, best + _UNTOLD) for two in _RIVALS):
            ours, theirs = at.where(order=order), at.where(order=rival)
            others = theirs.series("latency")
            met = [
                (m, others[seed]) for seed, m in ours.series("latency").items() if seed in others
            ]
            better = sum(mine < other for mine, other in met)
            ratios = (str(_over(ours, theirs, SHORT, f)) for f in ("latency", "latency_p95"))
            rows.append((workload, order, rival, *ratios, f"{better} of {len(met)}"))
    title = f"{best} over others with the short cache, on the same programs"
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
        less(
            workload + suffix,
            _over(at.where(order=_ours(found) + suffix), at.where(order=_BASELINE), SHORT),
        )
        for workload, at in each(found, "workload")
        for suffix in ("", _UNTOLD)
    ]
    return Headline("program latency over fcfs's with a short cache; less is better", scores)


EXPERIMENT: Final = Experiment(
    name="why",
    title="Why an order wins: through scheduling or through the cache",
    source="this project; Agentix, section 6, does not separate the two",
    published="",
    cells=_cells,
    measure=measure,
    tables=_tables,
    plots=_plots,
    notes=(
        "scheduling's share: with an endless cache all orders have the same hits, so the gain "
        "there is due to scheduling alone; the rest is due to the cache",
    ),
    headline=_headline,
)
