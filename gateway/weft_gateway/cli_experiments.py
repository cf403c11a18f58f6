"""The experiments: `weft bench list`, `weft bench run`, `weft bench all`, `weft bench page`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft_gateway.options import writable

experiments = typer.Typer()


def _folder(value: str) -> str:
    """A folder in which files can be written, or "". A callback of typer's. typer.BadParameter."""
    if value:
        writable(str(Path(value) / "experiment.json"))
    return value


_QUICK = Annotated[
    bool, typer.Option("--quick", help="a small form, at most a minute an experiment on two cores")
]
_JOBS = Annotated[int, typer.Option(min=0, max=256, help="cells measured at once; 0: one a core")]
_FRESH = Annotated[
    bool, typer.Option("--fresh", help="measure again what was measured with the same code")
]
_OUT = Annotated[
    str,
    typer.Option(
        callback=_folder, help="folder for figures and plots; empty: the project's, or .weft/quick"
    ),
]


@experiments.command("list")
def bench_list() -> None:
    """The experiments, and where each comes from."""
    from weft_bench.experiments.command import listing

    raise typer.Exit(listing())


@experiments.command("run")
def bench_run(
    name: Annotated[list[str], typer.Argument(help="experiments, as `weft bench list` has them")],
    quick: _QUICK = False,
    jobs: _JOBS = 0,
    fresh: _FRESH = False,
    out: _OUT = "",
) -> None:
    """Run experiments: baseline and ours on the same programs, at least three seeds."""
    from weft_bench.experiments.command import ExperimentOptions, run_experiments

    names = tuple(dict.fromkeys(name))
    raise typer.Exit(run_experiments(ExperimentOptions(names, quick, jobs, fresh, out=out)))


@experiments.command("all")
def bench_all(
    quick: _QUICK = False, jobs: _JOBS = 0, fresh: _FRESH = False, out: _OUT = ""
) -> None:
    """Run all experiments and write docs/results.md."""
    from weft_bench.experiments.command import ExperimentOptions, run_experiments
    from weft_bench.experiments.registry import EXPERIMENTS

    options = ExperimentOptions(tuple(EXPERIMENTS), quick, jobs, fresh, page=True, out=out)
    raise typer.Exit(run_experiments(options))


@experiments.command("page")
def bench_page() -> None:
    """Write docs/results.md from the figures in results, without measuring."""
    from weft_bench.experiments.command import write_page

    write_page()
