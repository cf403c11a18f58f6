"""`weft bench scheduler`: the time of a scheduler step, Weft's and vLLM's, in one run."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from rich.progress import Progress

from weft_bench.cli.parts import SchedulerOptions
from weft_bench.report.figures import finish, refuse
from weft_bench.report.rows import Column, Rows, figures, show
from weft_bench.stats import mean, percentile

if TYPE_CHECKING:
    from weft_bench.micro.scheduler.scene import Replica, Step


OURS: Final = "weft"
STOCK: Final = "stock"
LABELS: Final = ("case", "scheduler")
COLUMNS: Final = (
    Column("running", "1", "running", ".0f"),
    Column("waiting", "1", "waiting", ".0f"),
    Column("admitted", "1", "admitted", ".2f"),
    Column("schedule_p50", "s", "schedule p50, us", ",.0f", 1e6),
    Column("schedule_mean", "s", "mean, us", ",.0f", 1e6),
    Column("schedule_p99", "s", "p99, us", ",.0f", 1e6),
    Column("update_p50", "s", "update p50, us", ",.0f", 1e6),
    Column("update_mean", "s", "mean, us", ",.0f", 1e6),
)
RATIOS: Final = (
    Column("schedule_ratio", "1", "schedule p50", ".3f"),
    Column("schedule_ratio_least", "1", "least round", ".3f"),
    Column("schedule_ratio_greatest", "1", "greatest round", ".3f"),
    Column("schedule_mean_ratio", "1", "schedule mean", ".3f"),
    Column("update_ratio", "1", "update p50", ".3f"),
    Column("update_mean_ratio", "1", "update mean", ".3f"),
)


@dataclass(frozen=True, slots=True)
class Times:
    """One scheduler's times in one case.

    schedule_s, update_s: seconds of each step, round by round. running, waiting, admitted:
    sequences in a step, on average.
    """

    schedule_s: Sequence[Sequence[float]]
    update_s: Sequence[Sequence[float]]
    running: float
    waiting: float
    admitted: float

    def values(self) -> dict[str, float]:
        """Return the figures by the names of COLUMNS, over all rounds."""
        schedule = list(chain.from_iterable(self.schedule_s))
        update = list(chain.from_iterable(self.update_s))
        return {
            "running": self.running,
            "waiting": self.waiting,
            "admitted": self.admitted,
            "schedule_p50": percentile(schedule, 0.5),
            "schedule_mean": mean(schedule),
            "schedule_p99": percentile(schedule, 0.99),
            "update_p50": percentile(update, 0.5),
            "update_mean": mean(update),
        }


# (case, scheduler) to its times.
Measured = Mapping[tuple[str, str], Times]


def ratios(measured: Measured) -> Rows:
    """Return the ratios of Weft to stock vLLM by case, with the least and greatest of single
    rounds.
    """
    found = {}
    for case in dict.fromkeys(case for case, _ in measured):
        ours, stock = measured[case, OURS], measured[case, STOCK]
        one, other = ours.values(), stock.values()
        rounds = [
            percentile(a, 0.5) / percentile(b, 0.5)
            for a, b in zip(ours.schedule_s, stock.schedule_s, strict=True)
        ]
        found[(case,)] = {
            "schedule_ratio": one["schedule_p50"] / other["schedule_p50"],
            "schedule_ratio_least": min(rounds),
            "schedule_ratio_greatest": max(rounds),
            "schedule_mean_ratio": one["schedule_mean"] / other["schedule_mean"],
            "update_ratio": one["update_p50"] / other["update_p50"],
            "update_mean_ratio": one["update_mean"] / other["update_mean"],
        }
    return found


STEADY: Final = "steady"
QUIET: Final = "quiet"
RETURNING: Final = "returning"


def run(options: SchedulerOptions) -> int:
    """Measure and report.

    Returns the exit status: 2 if vLLM is missing or the policy is unknown.
    """
    try:
        from weft_bench.micro.scheduler.scene import Load, replicas
    except (ImportError, RuntimeError) as error:
        return refuse("scheduler", f"needs vLLM: {error}")
    measured: dict[tuple[str, str], Times] = {}
    try:
        with Progress() as progress:
            common: dict[str, Any] = {
                "asynchronous": options.asynchronous,
                "tenants": options.tenants,
            }
            sizes: dict[str, Any] = {"running": options.running, "waiting": options.waiting}
            loads = {
                STEADY: Load(**sizes, **common),
                QUIET: Load(**sizes, quiet=True, **common),
                RETURNING: Load(**sizes, context=options.context, blocks=options.blocks, **common),
            }
            for case, load in loads.items():
                pair = replicas(load, options.policy)
                for name, times in _measure(options, pair, case, progress).items():
                    measured[case, name] = times
    except ValueError as error:
        return refuse("scheduler", error)
    title = (
        f"Time of a scheduler step: {options.policy} and vLLM's priority, "
        f"{options.running:,} running, {options.waiting:,} waiting"
    )
    rows = {labels: times.values() for labels, times in measured.items()}
    compared = ratios(measured)
    show(title, LABELS, rows, COLUMNS)
    show(f"{OURS} over {STOCK}", ("case",), compared, RATIOS)
    found = figures(rows, COLUMNS) + figures(compared, RATIOS)
    finish("scheduler", options.json_file, asdict(options), found)
    return 0


def _measure(
    options: SchedulerOptions, pair: Mapping[str, Replica], case: str, progress: Progress
) -> dict[str, Times]:
    """Measure the schedulers alternately, step by step.

    Their order changes at each step too, so that drift of the machine affects both equally.
    """
    rounds: dict[str, list[list[Step]]] = {name: [] for name in pair}
    # Each case begins with prefills, which are not measured.
    warm_up = options.warm_up
    bar = progress.add_task(case, total=warm_up + options.rounds * options.steps)
    turns = list(pair)
    for _ in range(warm_up):
        for name in turns:
            pair[name].step()
        progress.advance(bar)
    gc.collect()
    # vLLM's engine core does the same after its start.
    gc.freeze()
    try:
        for _ in range(options.rounds):
            for name in turns:
                rounds[name].append([])
            for _ in range(options.steps):
                turns.reverse()
                for name in turns:
                    rounds[name][-1].append(pair[name].step())
                progress.advance(bar)
    finally:
        gc.unfreeze()
    return {name: _times(found) for name, found in rounds.items()}


def _times(rounds: list[list[Step]]) -> Times:
    steps = [step for round_ in rounds for step in round_]
    return Times(
        schedule_s=[[step.schedule_s for step in round_] for round_ in rounds],
        update_s=[[step.update_s for step in round_] for round_ in rounds],
        running=mean([step.scheduled for step in steps]),
        waiting=mean([step.waiting for step in steps]),
        admitted=mean([step.admitted for step in steps]),
    )
