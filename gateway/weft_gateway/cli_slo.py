"""`weft slo`: check SLO files, and report on deadlines of running gateways."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import typer

_GATEWAY: Final = "http://127.0.0.1:8080"

app = typer.Typer(
    help="Check SLO files, and report on deadlines of running gateways.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
def check(file: Annotated[str, typer.Argument(help="the SLO file, YAML")]) -> None:
    """Check an SLO file and show its content. The exit code is 2 if the file has errors."""
    from rich.console import Console
    from rich.table import Table

    from weft_gateway import slo

    try:
        slos = slo.load(file)
    except slo.SloError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    table = Table("class", "scope", "deadline", "attainment", "weight", "late")
    for name, one in slos.classes.items():
        deadline = f"{one.deadline_s:g} s" if one.deadline_s else "-"
        default = " (default)" if name == slos.others.default else ""
        figures = deadline, f"{one.attainment:g}", f"{one.weight:g}", one.late
        table.add_row(f"{name}{default}", one.scope, *figures)
    Console().print(table)


@app.command()
def report(
    gateway: Annotated[
        list[str] | None,
        typer.Option(help=f"base URL of a gateway; repeatable  [default: {_GATEWAY}]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show attainment, slack, misses by cause and fairness per class and tenant, since the gateways
    started. Several gateways are merged. WEFT_ADMIN_KEY is their admin key.
    """
    from weft_gateway.telemetry.slo_report import merged
    from weft_gateway.telemetry.slo_table import show

    found = merged([_fetch(url) for url in gateway or [_GATEWAY]]).to_json()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        show(found)


def _fetch(gateway: str) -> Any:
    """Return the report of a gateway. On an error, prints it and exits with 1."""
    from weft_gateway.cli_gateway import GatewayError, ask
    from weft_gateway.telemetry.slo_report import Report

    try:
        return Report.from_json(ask(gateway, "GET", "/weft/slo"))
    except GatewayError as error:
        what = str(error)
    except (ValueError, KeyError, TypeError, AttributeError):
        what = f"the answer of {gateway} is no report"
    typer.echo(f"weft slo report: {what}", err=True)
    raise typer.Exit(1)
