"""`weft replicas`: list, add, drain, resume and remove the replicas of a running gateway."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

_WITHIN_S: Final = 30.0
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
    import httpx

    key = os.environ.get("WEFT_ADMIN_KEY", "")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    url = f"{gateway.rstrip('/').removesuffix('/v1')}/weft/replicas{path}"
    try:
        answer = httpx.request(method, url, json=body, headers=headers, timeout=_WITHIN_S)
        parsed = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as failure:
        what = str(failure) or type(failure).__name__
        typer.echo(f"weft replicas: {gateway} cannot be used: {what}", err=True)
        raise typer.Exit(1) from None
    if answer.is_success:
        return parsed
    error = parsed.get("error", {}) if isinstance(parsed, dict) else {}
    typer.echo(f"weft replicas: {error.get('message', answer.status_code)}", err=True)
    raise typer.Exit(1)
