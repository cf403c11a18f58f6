"""`weft bench scheduler`: the time of a scheduler step, Weft's and vLLM's, in one run."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rich.progress import Progress

from weft_bench.cli.parts import SchedulerOptions
from weft_bench.report import scheduler as report
from weft_bench.report.figures import finish, refuse
from weft_bench.report.rows import figures, show
from weft_bench.stats import mean

if TYPE_CHECKING:
    from weft_bench.micro.scheduler.scene import Replica, Step

STEADY: Final = "steady"
QUIET: Final = "quiet"
SCARCE: Final = "scarce"
# Fewer calls run in the scarce case, because their contexts are long.
_SCARCE_RUNNING: Final = 60


def run(options: SchedulerOptions) -> int:
    """Measure and report.

    Returns the exit status: 2 if vLLM is missing or the policy is unknown.
    """
    try:
        from weft_bench.micro.scheduler.scene import Load, replicas
    except (ImportError, RuntimeError) as error:
        return refuse("scheduler", f"needs vLLM: {error}")
    measured: dict[tuple[str, str], report.Times] = {}
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
            }
            for waiting in options.scarce_waiting:
                running = min(options.running, _SCARCE_RUNNING)
                loads[f"{SCARCE}, {waiting} waiting"] = Load(
                    running=running, waiting=waiting, scarce=True, **common
                )
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
    ratios = report.ratios(measured)
    show(title, report.LABELS, rows, report.COLUMNS)
    show(f"{report.OURS} over {report.STOCK}", ("case",), ratios, report.RATIOS)
    found = figures(rows, report.COLUMNS) + figures(ratios, report.RATIOS)
    finish("scheduler", options.json_file, asdict(options), found)
    return 0


def _measure(
    options: SchedulerOptions, pair: Mapping[str, Replica], case: str, progress: Progress
) -> dict[str, report.Times]:
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


def _times(rounds: list[list[Step]]) -> report.Times:
    steps = [step for round_ in rounds for step in round_]
    return report.Times(
        schedule_s=[[step.schedule_s for step in round_] for round_ in rounds],
        update_s=[[step.update_s for step in round_] for round_ in rounds],
        running=mean([step.scheduled for step in steps]),
        waiting=mean([step.waiting for step in steps]),
        admitted=mean([step.admitted for step in steps]),
    )
