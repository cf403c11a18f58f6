"""`weft top`: the live view of a running gateway in a terminal."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def top(
    gateway: Annotated[str, typer.Option(help="base URL of the gateway")] = "http://127.0.0.1:8080",
    sort: Annotated[str, typer.Option(help="a column; with a minus, the largest first")] = "state",
    filter_: Annotated[
        str, typer.Option("--filter", help="a part of a session, key, state, model or replica")
    ] = "",
) -> None:
    """Show programs, engines and events as they happen, as the page /ui does.

    WEFT_ADMIN_KEY shows everything, OPENAI_API_KEY the programs of that key.
    """
    try:
        from weft_gateway.top_app import Top
    except ModuleNotFoundError as error:
        from weft_run.installing import command

        typer.echo(f"weft top: needs {error.name}. Run: {command('top')}", err=True)
        raise typer.Exit(2) from None
    screen = Top(gateway.rstrip("/").removesuffix("/v1"), sort, filter_)
    screen.run()
    if screen.failure:
        typer.echo(f"weft top: {screen.failure}", err=True)
        raise typer.Exit(1)
