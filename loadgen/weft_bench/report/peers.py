"""Output of the comparison with the peers: tables, intervals and findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log
from typing import Any, Final

from weft_bench.report.figures import Figure
from weft_bench.report.tables import Shown, Table, each, mean, percent, table
from weft_bench.studies.cells import Cell, Estimate, Measured, geometric

OURS: Final = "weft/"
# The default order. A table has its ratios to the other fronts.
DEFAULT: Final = "weft/resident"
BASELINE: Final = "weft/round_robin"
ALL: Final = "all"
# Share of the engines' work. Above it, the machine and not the cost model sets the pace.
_MAY_BE_LATE: Final = 0.01
_UNITS: Final = {
    "programs": "programs", "calls": "calls", "migrations": "calls", "recomputed_tokens": "tokens",
    "output_tokens": "tokens", "front_ms": "ms/call", "untold": "calls", "errors": "programs",
    "calls_per_s": "calls/s", "duration_s": "s", "mean": "s", "p50": "s",
    "p95": "s", "p99": "s", "turns": "turns", "turn_mean": "s", "turn_p50": "s", "turn_p95": "s",
}  # fmt: skip
# The figures that findings compare, and whether less is better.
_JUDGED: Final = {"mean": True, "p50": True, "p95": True, "p99": True, "jain": False}

_RATIOS: Final = ("mean", "p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class Turn:
    """One front's play of one workload with one seed.

    slices: figures by slice. load: rate of arrivals over `capacity`, 0 if the workload sets it.
    rate: of arrivals, programs per engine second. capacity: what the replicas complete, 0 if
    unknown.
    """

    workload: str
    front: str
    seed: int
    slices: Mapping[str, Mapping[str, float]]
    load: float = 0.0
    rate: float = 0.0
    capacity: float = 0.0

    @property
    def late(self) -> bool:
        """Whether the machine, and not the cost model, set the pace of emulated engines."""
        return self.slices[ALL].get("late", 0.0) > _MAY_BE_LATE

    @property
    def scene(self) -> str:
        """The workload with its load."""
        return f"{self.workload} at load {self.load:g}" if self.load else self.workload


def measured(turns: Sequence[Turn]) -> Measured:
    """Return the turns as cells with the settings workload, front and slice."""
    return Measured(
        {
            Cell((("front", turn.front), ("slice", part), ("workload", turn.scene)), turn.seed): v
            for turn in turns
            for part, v in turn.slices.items()
        }
    )


def _sum(figure: str) -> Shown:
    return lambda one, group: f"{sum(one.series(figure).values()):.0f}"


_COLUMNS: Final[Mapping[str, Shown]] = {
    "mean, s": mean("mean"), "p50, s": mean("p50"), "p95, s": mean("p95"), "p99, s": mean("p99"),
    "slowdown": mean("slowdown"), "Jain": mean("jain"), "migrated, %": percent("migrated"),
    "computed again, %": percent("recomputed"), "hit rate, %": percent("hit_rate"),
    "calls/s": mean("calls_per_s"), "front, ms": mean("front_ms"), "late, %": percent("late"),
    "errors": _sum("errors"),
}  # fmt: skip
_OF_SLICES: Final[Mapping[str, Shown]] = {
    "programs": _sum("programs"),
    **{
        n: _COLUMNS[n] for n in ("p50, s", "p95, s", "slowdown", "computed again, %", "hit rate, %")
    },
}


def tables(turns: Sequence[Turn], ours: str = DEFAULT) -> list[dict[str, Any]]:
    """Return a table for each workload, one of the ratios of `ours` to the other fronts, and one
    for the workload's slices, if it has these.
    """
    found = []
    for at in each(measured(turns), "workload"):
        workload = at.only("workload")
        whole = at.where(slice=ALL)
        programs = next(iter(whole.values.values()))
        seeds = ", ".join(str(seed) for seed in sorted({cell.seed for cell in whole.values}))
        title = (
            f"{workload}, {programs['programs']:.0f} programs of {programs['calls']:.0f} calls, "
        )
        columns = dict(_COLUMNS)
        if whole.where(front=BASELINE):
            columns["mean / round robin"] = lambda one, group: faultless(one).ratio(
                "mean", faultless(group.where(front=BASELINE))
            )
        found.append(table(whole, f"{title}seeds {seeds}", ("front",), columns))
        ratios = _ratios(faultless(whole), ours)
        if ratios:
            about = f"{workload}, {ours} over the others, on the same programs"
            found.append(Table(about, ("over", "seeds", *_RATIOS), ratios, labels=1))
        sliced = table(
            at,
            f"{workload}, programs with long gaps and the rest",
            ("front", "slice"),
            _OF_SLICES,
            lambda one: one.only("slice") != ALL,
        )
        found += [sliced] if sliced.rows else []
    return [asdict(one) for one in found]


def _ratios(found: Measured, name: str) -> list[tuple[str, ...]]:
    """Return rows with the ratios of one front to each other front, to the best peer of
    each seed, and to the best other order of Weft of each seed.
    """
    ours = found.where(front=name)
    others = [str(other) for other in found.levels("front") if other != name]
    if not ours or not others:
        return []
    peers = [other for other in others if not other.startswith(OURS)]
    # A row without sessions is not an order, and the baseline does not follow sessions either.
    orders = [one for one in others if one.count("/") == 1 and one not in (*peers, BASELINE)]
    groups = {other: [other] for other in others}
    groups |= {"best peer of each seed": peers} if len(peers) > 1 else {}
    groups |= {"best other order of each seed": orders} if len(orders) > 1 else {}
    rows = []
    for label, names in groups.items():
        ratios = [over_best(ours, found, names, figure) for figure in _RATIOS]
        count = len(ratios[0])
        if count:
            rows.append((label, str(count), *(str(geometric(logs)) for logs in ratios)))
    return rows


def over_best(
    ours: Measured, found: Measured, names: Sequence[str], figure: str, *, most: bool = False
) -> Sequence[float]:
    """Return the logarithms of our figure over the least of these fronts' figures, or over the
    most.

    Each seed has the fronts that played it. Seeds that none of them played are left out.
    """
    theirs = [found.where(front=name).series(figure) for name in names]
    logs = []
    for seed, value in ours.series(figure).items():
        best = (max if most else min)((one[seed] for one in theirs if seed in one), default=0.0)
        if value > 0 and best > 0:
            logs.append(log(value / best))
    return logs


def figures(turns: Sequence[Turn]) -> tuple[list[Figure], dict[str, float]]:
    """Return all means over seeds as `workload/front/slice/figure`, and half of their 95%
    intervals.
    """
    found, widths = [], {}
    for one in each(measured(turns), "workload", "front", "slice"):
        at = "/".join(str(one.only(name)) for name in ("workload", "front", "slice"))
        for name in next(iter(one.values.values())):
            value = one.estimate(name)
            found.append(Figure(f"{at}/{name}", value.middle, _UNITS.get(name, "1")))
            widths[f"{at}/{name}"] = value.half_width
    return found, widths


def findings(turns: Sequence[Turn]) -> list[str]:
    """List the figures in which Weft is worse or better than a peer, with ratios.

    Only ratios of plays with the same seed whose interval excludes 1 count. A single seed gives no
    findings.
    """
    if len({turn.seed for turn in turns}) < 2:
        return ["one seed has no intervals, so there are no findings"]
    found = []
    for at in each(faultless(measured(turns).where(slice=ALL)), "workload"):
        workload = at.only("workload")
        rows = {str(one.only("front")): one for one in each(at, "front")}
        peers = [name for name in rows if not name.startswith(OURS)]
        ours = [name for name in rows if name not in peers and name != BASELINE]
        for worse, word in ((True, "worse"), (False, "better")):
            said = [
                f"{workload}: {one} is {word} than {peer}: {told}"
                for one in ours
                for peer in peers
                if (told := _beside(rows[one], rows[peer], worse))
            ]
            none = f"{workload}: Weft is {word} than no peer within the intervals"
            found += said or [none]
    return found


def faultless(found: Measured) -> Measured:
    """Return the plays without an error.

    Failed programs have no times, and the others are no longer the same set of programs.
    """
    return Measured({cell: v for cell, v in found.values.items() if not v["errors"]})


def _beside(one: Measured, peer: Measured, worse: bool) -> str:
    """Return the figures in which one front is worse than another, or better, over at least two
    seeds.
    """
    if len(one.series("mean").keys() & peer.series("mean").keys()) < 2:
        return ""
    told: list[tuple[str, Estimate]] = []
    for name, less in _JUDGED.items():
        ratio = one.ratio(name, peer)
        if ratio.above(1) if less is worse else ratio.below(1):
            told.append((name, ratio))
    return ", ".join(f"{name} {ratio}" for name, ratio in told)
