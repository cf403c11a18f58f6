"""`weft why`: where the prompt tokens of a session came from, and why some were computed again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

_COLUMNS: Final = ("time", "request", "tokens", "seconds", "who", "cause")

app = typer.Typer()


@app.command()
def why(
    session: Annotated[str, typer.Argument(help="id of the session")],
    gateway: Annotated[str, typer.Option(help="base URL of the gateway")] = "http://127.0.0.1:8080",
) -> None:
    """Show each cache miss of a session: tokens and seconds that were computed again, the cause,
    and who can change it.

    OPENAI_API_KEY is the key of the session's client.
    """
    from weft_gateway.cli_gateway import GatewayError, ask

    path = f"/v1/sessions/{quote(session, safe='')}/story"
    try:
        story = ask(gateway, "GET", path, key="OPENAI_API_KEY")
    except GatewayError as error:
        typer.echo(f"weft why: {error}", err=True)
        raise typer.Exit(1) from None
    for line in lines(story):
        typer.echo(line)


def lines(story: dict[str, Any]) -> list[str]:
    """Return a story's misses as lines."""
    total = story["prompt"]
    if total is None:
        return ["No engine has counted a prompt of this session through this gateway."]
    sources = {name: total[name] for name in ("cached", "loaded", "new", "again")}
    tokens = sum(sources.values())
    shares = ", ".join(f"{share / (tokens or 1):.1%} {name}" for name, share in sources.items())
    found = [f"{total['calls']} calls, {tokens:,} prompt tokens: {shares}"]
    if not total["cause"]:
        return [*found, "Nothing was computed again."]
    rows = [_COLUMNS]
    for receipt in story["receipts"]:
        at = datetime.fromtimestamp(receipt["arrived_at"]).astimezone().strftime("%H:%M:%S")
        for one in (receipt["prompt"] or {"cause": {}})["cause"].values():
            seconds = "-" if one["seconds"] is None else f"{one['seconds']:.2f}"
            again = f"{one['tokens']:,}"
            rows.append((at, receipt["request_id"], again, seconds, one["who"], one["text"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    found += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    for cause, one in sorted(total["cause"].items(), key=lambda item: -item[1]["tokens"]):
        seconds = "" if one["seconds"] is None else f", {one['seconds']:.1f} s"
        found.append(f"{cause}: {one['tokens']:,} tokens{seconds}, calls: {one['calls']}")
    return found
