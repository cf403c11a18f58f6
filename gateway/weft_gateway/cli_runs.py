"""`weft run`: run a workflow over a file of rows."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

_GATEWAY: Final = "http://127.0.0.1:8080"
# Calls in flight for each healthy replica, if the number of its slots is not known.
_CALLS_PER_REPLICA: Final = 64
_EXIT_OK, _EXIT_FAILED_ROWS, _EXIT_INPUT, _EXIT_BUDGET, _EXIT_CANCELLED = 0, 1, 2, 3, 130
_REFRESH_S: Final = 0.25

app = typer.Typer(add_completion=False)


@app.command()
def run(
    workflow: Annotated[Path, typer.Argument(help="the workflow, YAML")],
    input_: Annotated[Path, typer.Option("--input", help="rows: .jsonl, .ndjson or .parquet")],
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
            min=1, help=f"calls in flight  [default: {_CALLS_PER_REPLICA} per healthy replica]"
        ),
    ] = None,
    shard: Annotated[
        str, typer.Option(help="I/N: run part I of N of the rows, for several machines")
    ] = "1/1",
    connection: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE: an SQLite database for sql operators; repeatable"),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="HOST or HOST:PORT that http operators may reach; repeatable"),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="show the operators, and run nothing")
    ] = False,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="show calls and tokens by operator at the end")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="show no progress")] = False,
) -> None:
    """Run a workflow over rows. Exit code: 0 all rows have ended well, 1 some rows have failed (see
    their column `error`), 2 invalid input, 3 a budget is spent, 130 interrupted.

    An interrupted run keeps its finished work in OUTPUT.journal, and --resume continues it.
    OPENAI_API_KEY is the key for the gateway.
    """
    from weft_gateway.runs.errors import JobError
    from weft_gateway.runs.job import Job, Opened
    from weft_gateway.runs.journal import JournalError
    from weft_gateway.runs.rows import RowsError
    from weft_gateway.workflows.check import WorkflowError
    from weft_gateway.workflows.spec import load

    try:
        text = workflow.read_text(encoding="utf-8")
        job = Job(
            load(text, str(workflow)),
            input_,
            output,
            _shard(shard),
            dict(_connection(one) for one in connection or ()),
            tuple(allow_host or ()),
        )
        # Functions are found beside the workflow and in the current folder.
        sys.path[:0] = [str(workflow.resolve().parent), str(Path.cwd())]
        if explain:
            _explain(job)
            raise typer.Exit(_EXIT_OK)
        opened = Opened(job, resume=resume)
    except (OSError, UnicodeError) as error:
        _fail(f"{workflow}: {getattr(error, 'strerror', '') or error}")
    except (WorkflowError, JobError, RowsError, JournalError) as error:
        _fail(str(error))
    options = _Options(gateway, in_flight, budget_tokens, max_errors, analyze, quiet)
    raise typer.Exit(asyncio.run(_run(job, opened, options)))


class _Options:
    def __init__(
        self,
        gateway: str,
        in_flight: int | None,
        tokens: int | None,
        errors: int | None,
        analyze: bool,
        quiet: bool,
    ) -> None:
        self.gateway, self.in_flight = gateway, in_flight
        self.tokens, self.errors = tokens, errors
        self.analyze, self.quiet = analyze, quiet


async def _run(job: Any, opened: Any, options: _Options) -> int:
    from weft_gateway.runs.budget import Budget
    from weft_gateway.runs.caller import HttpCaller
    from weft_gateway.runs.errors import JobError
    from weft_gateway.runs.job import check_tools, makes_calls, needs_model
    from weft_gateway.runs.journal import JournalError
    from weft_gateway.runs.rows import RowsError
    from weft_gateway.runs.runner import Runner
    from weft_gateway.runs.tools import Tools
    from weft_gateway.workflows.commands import ANY, RowMajor
    from weft_gateway.workflows.dispatch import Dispatch
    from weft_gateway.workflows.rewrite import rewrite

    journal = opened.journal
    key = os.environ.get("OPENAI_API_KEY", "")
    caller = HttpCaller(options.gateway, journal.program, api_key=key)
    tools = Tools(connections=job.connections, hosts=job.hosts)
    try:
        workflow = rewrite(job.workflow).workflow
        check_tools(workflow, tools)
        windows = {ANY: 1}
        if makes_calls(workflow):
            programs = await caller.programs()
            windows = _windows(programs, options.in_flight)
            if needs_model(workflow):
                workflow = replace(workflow, model=await caller.only_model())
        done, failed, used = journal.counts()
        budget = Budget(options.tokens, options.errors, used, failed)
        machine = Dispatch(workflow, windows, plan=RowMajor(list(windows)), gate=budget)
        runner = Runner(machine, opened.rows(), journal, caller, tools)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, runner.cancel)
        total = opened.stop - opened.start
        with _progress(runner, total, options.quiet or done == total):
            outcome = await runner.run()
        if outcome.reason == "done":
            opened.write()
    except (JobError, RowsError, JournalError, OSError) as error:
        journal.close(delete=not journal.begun)
        return _show(str(error))
    finally:
        await tools.aclose()
        await caller.aclose()
    if options.analyze:
        _analyze(machine)
    return _end(job, outcome, runner, journal)


def _windows(programs: list[str], calls: int | None) -> dict[str, int]:
    """Return the calls in flight of each program. calls: of all, None for the default."""
    most = calls or _CALLS_PER_REPLICA * len(programs)
    used = programs[:most]
    return {name: (most + at) // len(used) for at, name in enumerate(used)}


def _end(job: Any, outcome: Any, runner: Any, journal: Any) -> int:
    """Print the end of a run, and return the exit code."""
    figures = f"{outcome.rows} rows, {outcome.failed} failed, {runner.tokens} tokens"
    if outcome.reason == "done":
        typer.echo(f"{job.output}: {figures}", err=True)
        return _EXIT_FAILED_ROWS if outcome.failed else _EXIT_OK
    journal.close()
    why = {
        "tokens": "the token budget is spent",
        "errors": "too many rows have failed",
        "cancelled": "interrupted",
    }[outcome.reason]
    typer.echo(
        f"weft run: {why}: {figures}. {journal.path} has the finished work; --resume continues it.",
        err=True,
    )
    return _EXIT_CANCELLED if outcome.reason == "cancelled" else _EXIT_BUDGET


def _shard(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    is_part = slash and number.isdecimal() and count.isdecimal()
    if not is_part or not 1 <= int(number) <= int(count):
        _fail(f"--shard {text}: must be I/N with 1 <= I <= N, for example 2/4")
    return int(number), int(count)


def _connection(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if not (equals and name and file):
        _fail(f"--connection {text}: must be NAME=FILE")
    if not Path(file).is_file():
        _fail(f"--connection {text}: the file does not exist")
    return name, Path(file)


def _fail(message: str) -> NoReturn:
    raise typer.Exit(_show(message))


def _show(message: str) -> int:
    for line in message.splitlines():
        typer.echo(f"weft run: {line}", err=True)
    return _EXIT_INPUT


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


def _explain(job: Any) -> None:
    """Print the operators after rewriting, and what the rewrites did."""
    from weft_gateway.workflows.rewrite import rewrite

    done = rewrite(job.workflow)
    for one in done.workflow.operators:
        items = f" for each of {one.for_each}" if one.for_each else ""
        reads = f" <- {', '.join(one.inputs)}" if one.inputs else ""
        typer.echo(f"{one.name}: {type(one.body).__name__.lower()}{items}{reads}")
    for each in done.rewrites:
        typer.echo(f"{each.kind}: {each.operator}: {each.reason}")


def _analyze(machine: Any) -> None:
    """Print what each operator has cost."""
    from rich.console import Console
    from rich.table import Table

    names = ("operator", "done", "failed", "calls", "merged", "cached", "prompt", "hit", "output")
    table = Table(*names)
    for name, one in sorted(machine.counts.items()):
        usage = one.usage
        # Not all engines report it.
        hit = f"{usage.cached / usage.prompt:.0%}" if usage.cached else "-"
        figures = (one.done, one.failed, one.calls, one.merged, one.cached, usage.prompt)
        table.add_row(name, *map(str, figures), hit, str(usage.output))
    Console(stderr=True).print(table)
