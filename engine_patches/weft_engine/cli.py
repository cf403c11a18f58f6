"""The command `weft replica`."""

from __future__ import annotations

from typing import Annotated

import typer

replica = typer.Typer(add_completion=False)


@replica.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="model name or folder")] = "",
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port to listen on")] = 8001,
    policy: Annotated[
        str, typer.Option(help="order of waiting calls: fcfs, plas, ...")
    ] = "resident",
    emulated: Annotated[
        bool, typer.Option("--emulated", help="run without a model, with the times of --preset")
    ] = False,
    preset: Annotated[
        str,
        typer.Option(
            help="with --emulated: 8b, 14b, 32b or 70b on a100, h100, h200, l40 or a6000, or a "
            "file of `weft bench fit`"
        ),
    ] = "8b-a100",
    dilate: Annotated[
        float, typer.Option(help="with --emulated: factor on all times of the engine")
    ] = 1.0,
    scheduler: Annotated[
        str, typer.Option(help="with --emulated: weft, or stock for vLLM without the plugin")
    ] = "weft",
) -> None:
    """Run one vLLM engine with Weft's plugin. vLLM gets further arguments unchanged."""
    if emulated:
        from weft_engine.emulated.launch import run as emulate

        raise typer.Exit(
            emulate(
                model=model,
                host=host,
                port=port,
                policy=policy,
                preset=preset,
                dilate=dilate,
                scheduler=scheduler,
                extra=context.args,
            )
        )
    if not model:
        raise typer.BadParameter("an engine needs a model", param_hint="--model")
    ignored = [f"--{name}" for name in ("preset", "dilate", "scheduler") if _given(context, name)]
    if ignored:
        raise typer.BadParameter(f"{', '.join(ignored)}: only with --emulated")
    from weft_engine.launch import run as serve

    raise typer.Exit(serve(model=model, host=host, port=port, policy=policy, extra=context.args))


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
