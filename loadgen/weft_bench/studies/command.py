"""`weft bench list`, `weft bench run` and `weft bench all`: the commands of the experiments."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from weft_bench.studies import documents as report
from weft_bench.studies.experiment import Experiment
from weft_bench.studies.registry import EXPERIMENTS
from weft_bench.studies.runner import Run, default_jobs, run
from weft_bench.studies.store import ROOT, Store

RESULTS: Final = ROOT / "results" / "experiments"
_QUICK: Final = ROOT / ".weft" / "quick"


@dataclass(frozen=True, slots=True)
class ExperimentOptions:
    """Options of the commands; see their --help.

    jobs: 0 for one a core. out: empty for the project's
    results folder; the quick form never writes there.
    """

    names: tuple[str, ...]
    quick: bool = False
    jobs: int = 0
    fresh: bool = False
    out: str = ""


def listing() -> int:
    """Print the list of experiments. Returns 0."""
    console = Console()
    for one in EXPERIMENTS.values():
        console.print(f"[bold]{one.name}[/bold]  {one.title}", highlight=False, soft_wrap=True)
        console.print(f"    {one.kind}; {one.source}", highlight=False, soft_wrap=True)
    return 0


def run_experiments(options: ExperimentOptions) -> int:
    """Measure, show and write experiments.

    Returns the exit status: 2 for an unknown name or a missing dependency, 1 if a measurement
    fails, 130 after ctrl-C and 143 after SIGTERM. These signals end it at once. Call it in the main
    thread, which receives the signals.
    """
    unknown = [name for name in options.names if name not in EXPERIMENTS]
    if unknown:
        known = ", ".join(EXPERIMENTS)
        print(f"weft bench: unknown experiment {unknown[0]!r}; known: {known}", file=sys.stderr)
        return 2
    console = Console()
    heard = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _run_all(options, console)
    except _Stopped as stopped:
        kept = "--fresh discards cells" if options.fresh else "measured cells are kept"
        again = "starts again" if options.fresh else "continues"
        print(f"weft bench: stopped; {kept}; the same command {again}", file=sys.stderr)
        return 128 + stopped.number
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)


class _Stopped(BaseException):
    """Raised on a signal. A BaseException, so that no code handles it as an error."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, frame: object) -> None:
    raise _Stopped(number)


def _run_all(options: ExperimentOptions, console: Console) -> int:
    for name in options.names:
        experiment = EXPERIMENTS[name]
        try:
            found = _run(experiment, options, console)
        except ImportError as error:
            print(f"weft bench: {name} requires vLLM: {error}", file=sys.stderr)
            return 2
        except (RuntimeError, ValueError, OSError) as error:
            print(f"weft bench: {name}: {error}", file=sys.stderr)
            return 1
        _keep(experiment, found, options, console)
    return 0


def _run(experiment: Experiment, options: ExperimentOptions, console: Console) -> Run:
    store = None if options.fresh else Store(experiment)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        bar = progress.add_task(experiment.name, total=None)
        return run(
            experiment,
            options.quick,
            store,
            options.jobs or default_jobs(),
            lambda done, of: progress.update(bar, completed=done, total=of),
        )


def _keep(experiment: Experiment, found: Run, options: ExperimentOptions, console: Console) -> None:
    command = f"weft bench run {experiment.name}" + (" --quick" if options.quick else "")
    document = report.document(experiment, found.measured, command)
    console.rule(f"{experiment.name}: {experiment.title}", align="left")
    report.show(document)
    console.print(
        f"{len(found.measured.values)} cells, {found.taken} already measured; "
        f"{found.cpu_s:.0f} CPU seconds, {found.wall_s:.0f} s",
        highlight=False,
    )
    folder = Path(options.out) if options.out else _QUICK if options.quick else RESULTS
    file = folder / f"{experiment.name}.json"
    report.write(file, document)
    console.print(f"written: {file}", highlight=False, soft_wrap=True)
