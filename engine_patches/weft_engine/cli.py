"""The command `weft replica`."""

from __future__ import annotations

from typing import Annotated

import typer

replica = typer.Typer(add_completion=False)


@replica.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="model name or folder")],
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port to listen on")] = 8001,
    policy: Annotated[
        str, typer.Option(help="order of waiting calls: fcfs, plas, ...")
    ] = "warm_plas",
) -> None:
    """Run one vLLM engine with Weft's plugin. vLLM gets further arguments unchanged."""
    from weft_engine.launch import run as serve

    raise typer.Exit(serve(model=model, host=host, port=port, policy=policy, extra=context.args))
