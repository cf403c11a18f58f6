"""`weft slo`: check SLO files."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def slo() -> None:
    """Check SLO files."""


@app.command()
def check(file: Annotated[str, typer.Argument(help="the SLO file, YAML")]) -> None:
    """Check an SLO file and show its content. The exit code is 2 if the file has errors."""
    from rich.console import Console
    from rich.table import Table

    from weft_gateway.slo import SloError, load

    try:
        slos = load(file)
    except SloError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    table = Table("class", "scope", "deadline", "attainment", "late")
    for name, one in slos.classes.items():
        deadline = f"{one.deadline_s:g} s" if one.deadline_s else "-"
        default = " (default)" if name == slos.others.default else ""
        figures = deadline, f"{one.attainment:g}", one.late
        table.add_row(f"{name}{default}", one.scope, *figures)
    Console().print(table)
