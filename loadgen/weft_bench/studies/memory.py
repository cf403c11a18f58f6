"""Orders over load and cache size: the map of where admission to the cache helps, and where not.

A cell's cache holds the contexts of a number of programs. Its load is relative to the capacity of
the engine with this cache: the rate at which it completes the first four fifths of a burst of the
same programs, first come, first served by program. Each seed has its own capacity. All orders play
the same programs at the same times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from weft_bench.stats import mean as average
from weft_bench.stats import percentile
from weft_bench.studies.cells import Cell, Estimate, Measured, Setting, Values, cells
from weft_bench.studies.experiment import (
    Drawing,
    Experiment,
    Headline,
    HeatMap,
    Plot,
    Score,
    Series,
    Table,
    less,
)
from weft_bench.studies.show import each, lines, mean, table
from weft_bench.studies.simulating import EIGHTH, Scene, System, play
from weft_bench.virtual.records import steady

_OURS: Final = "resident"
# fcfs is vLLM's own order. Every order of Weft evicts by tag, and mlfq and plas swap.
ORDERS: Final[Mapping[str, System]] = {
    "fcfs": System("fcfs"),
    "program_fifo": System("program_fifo", tags=True),
    "mlfq": System("mlfq", tags=True, swap=True),
    "plas": System("plas", tags=True, swap=True),
    _OURS: System(_OURS, tags=True),
}
# Mean tokens of the last context of a program.
_CONTEXT: Final = {"sharegpt": 3300, "bfcl": 8300, "swe": 9700}
# A cache for fewer contexts of sharegpt would not hold its longest calls.
_CACHES: Final = {"sharegpt": (12, 24), "bfcl": (4, 8), "swe": (4, 8)}
_LOADS: Final = (0.8, 1.2)
_BLOCK_TOKENS: Final = 16
_PROGRAMS: Final = 60
_SEEDS: Final = 3
# A burst keeps the engine busy until this share of its programs has ended.
_BUSY: Final = 0.8
_FIGURES: Final[Mapping[str, str]] = {
    "mean": "latency",
    "P95": "latency_p95",
    "P99": "latency_p99",
}
# The constants of the orders were fixed with other seeds.
_FIRST_SEED: Final = 100


def measure(cell: Cell) -> Values:
    """Return the figures of a cell over the programs of the middle.

    Its settings are `workload`, `cache` (contexts), `load` and `order`. latency, latency_p95,
    latency_p99: of programs, seconds. hit_rate: of their calls. Raises the errors of `play`.
    """
    workload, seed = cell.text("workload"), _FIRST_SEED + cell.seed
    blocks = _blocks(workload, int(cell.number("cache")))
    rate = cell.number("load") * _capacity(workload, blocks, seed)
    found = play(_scene(workload, blocks, rate), ORDERS[cell.text("order")], seed)
    window = steady(found.programs)
    responses = [program.response_s for program in window.programs]
    names = {program.id for program in window.programs}
    calls = [call for call in found.calls if call.program in names]
    return {
        "latency": average(responses),
        "latency_p95": percentile(responses, 0.95),
        "latency_p99": percentile(responses, 0.99),
        "rate": rate,
        "hit_rate": sum(call.cached_tokens for call in calls) / sum(c.prompt_tokens for c in calls),
    }


def _blocks(workload: str, contexts: int) -> int:
    return contexts * _CONTEXT[workload] // _BLOCK_TOKENS


def _scene(workload: str, blocks: int, rate: float) -> Scene:
    return Scene(workload, _PROGRAMS, rate, slots=EIGHTH["slots"], kv_blocks=blocks)


@lru_cache(maxsize=64)
def _capacity(workload: str, blocks: int, seed: int) -> float:
    burst = play(_scene(workload, blocks, 0.0), ORDERS["program_fifo"], seed)
    ended = int(_BUSY * _PROGRAMS)
    return ended / sorted(program.end_s for program in burst.programs)[ended - 1]


def _cells(quick: bool) -> Sequence[Cell]:
    settings: list[dict[str, Setting]] = [
        {"workload": workload, "cache": contexts, "load": load, "order": order}
        for workload in (("swe",) if quick else _CONTEXT)
        for contexts in _CACHES[workload][: 1 if quick else None]
        for load in (_LOADS[:1] if quick else _LOADS)
        for order in (("fcfs", "program_fifo", _OURS) if quick else ORDERS)
    ]
    return [cell for one in settings for cell in cells(_SEEDS, **one)]


def _rivals(found: Measured) -> Sequence[Setting]:
    return [name for name in found.levels("order") if name != _OURS]


def _best(group: Measured, figure: str) -> tuple[str, Measured]:
    """Return the strongest rival: the one with the least geometric mean."""
    rivals = [(str(name), group.where(order=name)) for name in _rivals(group)]
    base = group.where(order=_OURS)
    return max(rivals, key=lambda rival: base.ratio(figure, rival[1]).middle)


def _over_best(group: Measured, figure: str) -> tuple[Estimate, str]:
    """Return the ratio to the strongest rival, and its name."""
    name, rival = _best(group, figure)
    return group.where(order=_OURS).ratio(figure, rival), name


def _figures(found: Measured) -> Mapping[str, str]:
    """Return the figures that were measured, by label."""
    cells = found.values.values()
    return {
        label: figure
        for label, figure in _FIGURES.items()
        if any(figure in values for values in cells)
    }


def _tables(found: Measured) -> Sequence[Table]:
    rows, names = [], _rivals(found)
    for workload, one in each(found, "workload"):
        for contexts, at in each(one, "cache"):
            for load, group in each(at, "load"):
                ours = group.where(order=_OURS)
                others = (ours.ratio("latency", group.where(order=name)) for name in names)
                p95 = ours.ratio("latency_p95", _best(group, "latency")[1])
                row = (_best(group, "latency")[0], p95, *others)
                rows.append((workload, contexts, load, *map(str, row)))
    title = f"mean program latency of {_OURS} over that of each other order, on the same programs"
    columns = (
        "workload",
        "cache, contexts",
        "load",
        "best rival",
        "p95 over its",
        *map(str, names),
    )
    down = {"workload": "workload", "cache": "cache", "load": "load", "order": "order"}
    shown = {
        "latency, s": mean("latency"),
        "p95, s": mean("latency_p95"),
        "hit rate": mean("hit_rate"),
    }
    return [
        Table(title, columns, rows, labels=4),
        table(found, "program latency and hit rate", down, shown),
    ]


def _panels(found: Measured, figure: str) -> list[tuple[str, Sequence[Series]]]:
    """Return one panel for each workload and cache: a row of the smallest caches, and so on."""
    panels = [
        (place, f"{workload}, cache for {contexts}", lines(at, "load", "order", figure))
        for workload, one in each(found, "workload")
        for place, (contexts, at) in enumerate(each(one, "cache"))
    ]
    return [(name, drawn) for _, name, drawn in sorted(panels, key=lambda panel: panel[0])]


def _plots(found: Measured) -> Sequence[Drawing]:
    maps = [
        HeatMap(
            "load",
            "cache, contexts",
            f"{label} latency over the best other order's",
            [
                (
                    workload,
                    {
                        (float(at.only("load")), float(at.only("cache"))): _over_best(at, figure)
                        for _, at in each(one, "load", "cache")
                    },
                )
                for workload, one in each(found, "workload")
            ],
            file="-map",
        )
        for label, figure in _figures(found).items()
    ]
    # Seeds differ more than orders do, so these lines have no intervals; ratios are in the maps.
    loads = [
        Plot(
            "load",
            f"{label} latency, s",
            _panels(found, figure),
            bars=False,
            file="-load",
        )
        for label, figure in _figures(found).items()
    ]
    return [*maps, *loads] if found else []


def _headline(found: Measured) -> Headline:
    scores: list[Score] = []
    for workload, one in each(found, "workload"):
        for contexts, at in each(one, "cache"):
            for load, group in each(at, "load"):
                for label, figure in _figures(found).items():
                    ratio, name = _over_best(group, figure)
                    subject = f"{workload}, cache for {contexts}, load {load}, {label} ({name})"
                    scores.append(less(subject, ratio))
    what = "program latency over that of the best other order of each cell; less is better"
    return Headline(what, scores)


EXPERIMENT: Final = Experiment(
    name="memory",
    title="Orders over load and cache size",
    source="this project",
    published="",
    cells=_cells,
    measure=measure,
    tables=_tables,
    plots=_plots,
    notes=(
        "the best rival is chosen after the fact in each cell, from all other orders, so the ratio "
        "to it is an upper bound of what a user who picks one order sees",
        "load 1 is the rate at which the engine with this cache completes four fifths of a burst",
    ),
    headline=_headline,
    order=_OURS,
    first_seed=_FIRST_SEED,
)
