"""`weft run`: run a workflow over a file of rows. `weft explain`: show its plan before."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

_GATEWAY: Final = "http://127.0.0.1:8080"
_EXIT_OK, _EXIT_FAILED_ROWS, _EXIT_INPUT, _EXIT_BUDGET, _EXIT_CANCELLED = 0, 1, 2, 3, 130
_EXIT_UNMET: Final = 4
_REFRESH_S: Final = 0.25
_REASONS: Final = {
    "tokens": "the token budget is spent",
    "errors": "too many rows have failed",
    "cancelled": "interrupted",
}

app = typer.Typer(add_completion=False)
explaining = typer.Typer(add_completion=False)

_Workflow = Annotated[
    Path, typer.Argument(help="the workflow, YAML, or a LangGraph graph as module:name")
]
_Input = Annotated[Path, typer.Option("--input", help="rows: .jsonl, .ndjson or .parquet")]


@explaining.command()
def explain(
    workflow: _Workflow,
    input_: _Input,
    sample: Annotated[
        int, typer.Option(min=1, help="rows to try; figures of more rows are scaled")
    ] = 1000,
) -> None:
    """Show the requests, tokens and rewrites of a workflow over a file of rows. No call is made.

    Lengths of answers are estimates: `max_tokens`, at most 128. Exit code: 0, or 2 for invalid
    input.
    """
    from rich.console import Console

    from weft_run.io.explaining import explained
    from weft_run.io.graphs import find_functions, workflow_of
    from weft_run.plan.explain_text import text

    with _errors("explain", workflow):
        find_functions(workflow)
        found = explained(workflow_of(str(workflow), input_), input_, sample=sample)
    console = Console()
    color = console.is_terminal and not console.no_color
    sys.stdout.write(text(found, _width(console), color))


@app.command()
def run(
    workflow: _Workflow,
    input_: _Input,
    output: Annotated[Path, typer.Option(help="results: .jsonl, .ndjson or .parquet")],
    gateway: Annotated[str, typer.Option(help="base URL of the gateway")] = _GATEWAY,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue a run that was interrupted")
    ] = False,
    budget_tokens: Annotated[
        int | None, typer.Option(min=1, help="stop before the calls use more tokens")
    ] = None,
    max_errors: Annotated[
        int | None, typer.Option(min=0, help="stop if more rows have failed")
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option(
            min=1, help="calls in flight  [default: 1.25 per slot of the healthy replicas]"
        ),
    ] = None,
    connection: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE: an SQLite database for sql operators; repeatable"),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="HOST or HOST:PORT that http operators may reach; repeatable"),
    ] = None,
    prompt_cache: Annotated[
        Path | None,
        typer.Option(help="file with the answers of earlier runs; it is created if it is missing"),
    ] = None,
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze", help="show calls and tokens by operator at the end, beside the prediction"
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="show no progress")] = False,
) -> None:
    """Run a workflow over rows. Exit code: 0 all rows have ended well, 1 some rows have failed (see
    their column `error`), 2 invalid input, 3 a budget is spent, 4 the loops of some rows have ended
    without their condition, and no row has failed, 130 interrupted.

    An interrupted run keeps its finished work in OUTPUT.journal, and --resume continues it.
    OPENAI_API_KEY is the key for the gateway.
    """
    from weft_run.io import local
    from weft_run.io.explaining import explained
    from weft_run.io.graphs import find_functions, workflow_of
    from weft_run.io.job import Job, Opened

    connections = _connections(connection or ())
    hosts = tuple(map(_host, allow_host or ()))
    with _errors("run", workflow):
        find_functions(workflow)
        graph = workflow_of(str(workflow), input_)
        job = Job(graph, input_, output, connections, hosts, prompt_cache)
        plan = explained(job.workflow, job.input) if analyze else None
        opened = Opened(job, resume=resume)
    key = os.environ.get("OPENAI_API_KEY", "")
    options = local.Options(gateway, key, in_flight, budget_tokens, max_errors)
    begun_s = time.monotonic()
    with _errors("run", workflow):
        ended = asyncio.run(local.run(job, opened, options, partial(_watch, quiet)))
    if plan is not None:
        _analyze(ended.counts, plan, time.monotonic() - begun_s)
    raise typer.Exit(_end(job, ended))


@contextmanager
def _errors(command: str, workflow: Path) -> Iterator[None]:
    """Print errors of files and of the workflow, and exit."""
    from weft_run.io.errors import JobError
    from weft_run.io.journal import JournalError
    from weft_run.io.rows import RowsError
    from weft_run.language.check import WorkflowError

    try:
        yield
    except (OSError, UnicodeError) as error:
        _fail(f"{workflow}: {getattr(error, 'strerror', '') or error}", command)
    except (WorkflowError, JobError, RowsError, JournalError) as error:
        _fail(str(error), command)


@contextmanager
def _watch(quiet: bool, runner: Any, total: int) -> Iterator[None]:
    """Stop the run on signals, and show its progress."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, runner.cancel)
    with _progress(runner, total, quiet or runner.rows == total):
        yield


def _end(job: Any, ended: Any) -> int:
    """Print the end of a run, and return the exit code."""
    reason, rows, failed, unmet = ended.outcome
    shown = f"{unmet} unmet, " if unmet else ""
    figures = f"{rows} rows, {failed} failed, {shown}{ended.tokens} tokens"
    if reason == "done":
        typer.echo(f"{job.output}: {figures}", err=True)
        return _EXIT_FAILED_ROWS if failed else _EXIT_UNMET if unmet else _EXIT_OK
    kept = f"{job.journal_path} has the finished work; --resume continues it."
    typer.echo(f"weft run: {_REASONS[reason]}: {figures}. {kept}", err=True)
    return _EXIT_CANCELLED if reason == "cancelled" else _EXIT_BUDGET


def _connections(texts: Iterable[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not (equals and name and file):
            _fail(f"--connection {text}: must be NAME=FILE")
        if not Path(file).is_file():
            _fail(f"--connection {text}: the file does not exist")
        if name in found:
            _fail(f"--connection {text}: the name {name!r} is given twice")
        found[name] = Path(file)
    return found


def _host(text: str) -> str:
    from weft_run.urls import allowed_host

    try:
        host, port = allowed_host(text)
    except ValueError as error:
        _fail(f"--allow-host {error}")
    return f"{host}:{port}" if port else host


def _fail(message: str, command: str = "run") -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"weft {command}: {line}", err=True)
    raise typer.Exit(_EXIT_INPUT)


@contextmanager
def _progress(runner: Any, total: int, quiet: bool) -> Iterator[None]:
    """Show a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    columns = (
        BarColumn(), MofNCompleteColumn(), TextColumn("rows, {task.fields[failed]} failed,"),
        TextColumn("{task.fields[tokens]} tokens"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total, failed=0, tokens=0)

        async def refresh() -> None:
            while True:
                bar.update(task, completed=runner.rows, failed=runner.failed, tokens=runner.tokens)
                await asyncio.sleep(_REFRESH_S)

        refreshing = asyncio.get_running_loop().create_task(refresh())
        try:
            yield
        finally:
            refreshing.cancel()


def _width(console: Any) -> int:
    """Return the width of a terminal, or that of text for a file or pipe."""
    from weft_run.plan.explain_text import PIPE_WIDTH

    return int(console.width) if console.is_terminal else PIPE_WIDTH


def _analyze(counts: Any, plan: Any, took_s: float) -> None:
    """Print what each operator has cost. counts: by operator. plan: `Explained` of the same rows.
    took_s: seconds of the run.
    """
    from rich.console import Console
    from rich.table import Table

    names = ("operator", "done", "failed", "calls", "merged", "cached", "prompt", "hit", "output")
    table = Table(*names, caption="In brackets: predicted before the run.")
    # A long name takes several lines: cut names would be ambiguous.
    table.columns[0].overflow = "fold"
    for name, one in sorted(counts.items()):
        usage, guess = one.usage, plan.counts.get(name)
        # Not all engines report it.
        hit = f"{usage.cached / usage.prompt:.0%}" if usage.cached else "-"
        figures = [str(one.calls), str(usage.prompt), hit, str(usage.output)]
        if guess is not None and guess.usage.prompt:
            share = f"{guess.usage.cached / guess.usage.prompt:.0%}"
            predicted = (guess.calls, guess.usage.prompt, share, guess.usage.output)
            figures = [f"{a} ({p})" for a, p in zip(figures, predicted, strict=True)]
        calls, prompt, hit, output = figures
        shared = (str(one.merged), str(one.cached))
        table.add_row(name, str(one.done), str(one.failed), calls, *shared, prompt, hit, output)
    console = Console(stderr=True)
    console.width = _width(console)
    console.print(table)
    if plan.requests:
        console.print(f"{took_s:.1f} s")
