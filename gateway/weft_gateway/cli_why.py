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
    tokens = sum(sources.values()) or 1
    shares = ", ".join(f"{share / tokens:.1%} {name}" for name, share in sources.items())
    found = [f"{total['calls']} calls, {tokens:,} prompt tokens: {shares}"]
    rows = [row for receipt in story["receipts"] for row in _rows(receipt)]
    if not rows:
        return [*found, "Nothing was computed again."]
    rows = [_COLUMNS, *rows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    for row in rows:
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        found.append("  ".join(padded).rstrip())
    for cause, one in sorted(total["cause"].items(), key=lambda item: -item[1]["tokens"]):
        seconds = "" if one["seconds"] is None else f", {one['seconds']:.1f} s"
        found.append(f"{cause}: {one['tokens']:,} tokens{seconds}, calls: {one['calls']}")
    return found


def _rows(receipt: dict[str, Any]) -> list[tuple[str, ...]]:
    prompt = receipt["prompt"] or {"cause": {}}
    at = datetime.fromtimestamp(receipt["arrived_at"]).astimezone().strftime("%H:%M:%S")
    return [
        (
            at,
            receipt["request_id"],
            f"{one['tokens']:,}",
            "-" if one["seconds"] is None else f"{one['seconds']:.2f}",
            one["who"],
            one["text"],
        )
        for one in prompt["cause"].values()
    ]
