"""`weft explain`: show the plan of a workflow before it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

_EXIT_INPUT: Final = 2

app = typer.Typer(add_completion=False)


@app.command()
def explain(
    workflow: Annotated[
        Path, typer.Argument(help="the workflow, YAML, or a LangGraph graph as module:name")
    ],
    input_: Annotated[Path, typer.Option("--input", help="rows: .jsonl, .ndjson or .parquet")],
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
    from weft_run.io.rows import RowsError
    from weft_run.language.check import WorkflowError
    from weft_run.plan.explain_text import PIPE_WIDTH, text

    try:
        find_functions(workflow)
        graph = workflow_of(str(workflow), input_)
        found = explained(graph, input_, sample=sample)
    except (OSError, UnicodeError) as error:
        _fail(f"{workflow}: {getattr(error, 'strerror', '') or error}")
    except (WorkflowError, RowsError) as error:
        _fail(str(error))
    else:
        console = Console()
        terminal = console.is_terminal
        width = console.width if terminal else PIPE_WIDTH
        sys.stdout.write(text(found, width, terminal and not console.no_color))


def _fail(message: str) -> None:
    for line in message.splitlines():
        typer.echo(f"weft explain: {line}", err=True)
    raise typer.Exit(_EXIT_INPUT)
