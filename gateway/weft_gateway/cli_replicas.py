"""`weft replicas`: list, add, drain, resume and remove the replicas of a running gateway."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

_COLUMNS: Final = ("name", "state", "calls_in_flight", "homes", "safe_to_delete", "url")

app = typer.Typer(
    help="List, add, drain, resume and remove the replicas of a running gateway. WEFT_ADMIN_KEY "
    "is the gateway's admin key.",
    no_args_is_help=True,
)

Gateway = Annotated[str, typer.Option(help="base URL of the gateway")]
Name = Annotated[str, typer.Argument(help="name of the replica, as `list` shows it")]
Force = Annotated[bool, typer.Option("--force", help="do it even if the replica is needed")]
_GATEWAY: Final = "http://127.0.0.1:8080"


@app.command("list")
def list_(gateway: Gateway = _GATEWAY) -> None:
    """Show the replicas, and why a draining one is not safe to delete yet."""
    replicas = _ask(gateway, "GET", "")["replicas"]
    rows = [_COLUMNS, *(tuple(str(each[name]) for name in _COLUMNS) for each in replicas)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    for row in rows:
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        typer.echo("  ".join(padded).rstrip())
    for each in replicas:
        if each["state"] == "draining" and each["waits_for"]:
            typer.echo(f"{each['name']}: {'; '.join(each['waits_for'])}")


@app.command()
def add(
    url: Annotated[str, typer.Argument(help="URL or NAME=URL of an engine")],
    gateway: Gateway = _GATEWAY,
) -> None:
    """Add a replica."""
    name, equals, rest = url.partition("=")
    named = bool(equals) and "/" not in name
    _show(_ask(gateway, "POST", "", {"url": rest, "name": name} if named else {"url": url}))


@app.command()
def drain(
    name: Name,
    drain_s: Annotated[
        float, typer.Option(help="time for which programs keep the replica as their home, seconds")
    ] = 60.0,
    force: Force = False,
    gateway: Gateway = _GATEWAY,
) -> None:
    """Let a replica take no new programs."""
    if not isfinite(drain_s):
        raise typer.BadParameter("must be a finite number of seconds", param_hint="--drain-s")
    _show(_ask(gateway, "POST", f"/{quote(name)}/drain{_query(force)}", {"drain_s": drain_s}))


@app.command()
def resume(name: Name, gateway: Gateway = _GATEWAY) -> None:
    """End a drain."""
    _show(_ask(gateway, "POST", f"/{quote(name)}/resume", {}))


@app.command()
def remove(name: Name, force: Force = False, gateway: Gateway = _GATEWAY) -> None:
    """Remove a replica that is safe to delete."""
    _ask(gateway, "DELETE", f"/{quote(name)}{_query(force)}")
    typer.echo(f"{name}: removed")


def _show(replica: dict[str, Any]) -> None:
    typer.echo(f"{replica['name']}: {replica['state']}")


def _query(force: bool) -> str:
    return "?force=true" if force else ""


def _ask(gateway: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Return the gateway's answer. Prints its error and exits with 1 if it refuses."""
    from weft_gateway.cli_gateway import GatewayError, ask

    try:
        return ask(gateway, method, f"/weft/replicas{path}", body)
    except GatewayError as error:
        what = str(error).replace("?force=true", "--force")
        typer.echo(f"weft replicas: {what}", err=True)
        raise typer.Exit(1) from None
