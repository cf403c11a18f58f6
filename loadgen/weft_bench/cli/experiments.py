"""The commands of the experiments: `weft bench list`, `run`, `all`, `page`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft_bench.cli.options import writable

experiments = typer.Typer()


def _folder(value: str) -> str:
    """Check in a typer callback that files can be written in this folder, unless it is ""."""
    if value:
        writable(str(Path(value) / "experiment.json"))
    return value


_QUICK = Annotated[
    bool, typer.Option("--quick", help="a small form: at most a minute per experiment on two cores")
]
_JOBS = Annotated[int, typer.Option(min=0, max=256, help="cells measured at once; 0: one per core")]
_FRESH = Annotated[
    bool, typer.Option("--fresh", help="ignore results that the same code measured before")
]
_OUT = Annotated[
    str,
    typer.Option(
        callback=_folder, help="folder for figures and plots; empty: the project's, or .weft/quick"
    ),
]


@experiments.command("list")
def bench_list() -> None:
    """List the experiments and their sources."""
    from weft_bench.studies.command import listing

    raise typer.Exit(listing())


@experiments.command("run")
def bench_run(
    name: Annotated[list[str], typer.Argument(help="names from `weft bench list`")],
    quick: _QUICK = False,
    jobs: _JOBS = 0,
    fresh: _FRESH = False,
    out: _OUT = "",
) -> None:
    """Run experiments: baseline and Weft on the same programs, with at least three seeds."""
    from weft_bench.studies.command import ExperimentOptions, run_experiments

    names = tuple(dict.fromkeys(name))
    raise typer.Exit(run_experiments(ExperimentOptions(names, quick, jobs, fresh, out=out)))
