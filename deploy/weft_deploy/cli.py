"""The command `weft up`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from weft_deploy.options import PassThroughCommand, exclude, given

up = typer.Typer(add_completion=False)

DEFAULT_PORT: Final = 8080


@up.command(cls=PassThroughCommand)
def run(
    context: typer.Context,
    replicas: Annotated[int, typer.Option(min=1, max=64, help="engines to start")] = 2,
    model: Annotated[str, typer.Option(help="model name or folder; default: the demo model")] = "",
    attach: Annotated[
        list[str] | None, typer.Option(help="[NAME=]URL of a running engine; repeatable")
    ] = None,
    redis: Annotated[str, typer.Option(help="process table on Redis; default: in memory")] = "",
    policy: Annotated[str, typer.Option(help="order in the engines: fcfs, plas, ...")] = "resident",
    balancer: Annotated[str, typer.Option(help="as of `weft serve`")] = "locality",
    host: Annotated[str, typer.Option(help="address of the gateway")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port of the gateway")] = DEFAULT_PORT,
    slo: Annotated[str, typer.Option(help="as of `weft serve`: YAML file with SLO classes")] = "",
    keys: Annotated[
        str, typer.Option(help="as of `weft serve`: TOML file of accepted API keys")
    ] = "",
    emulated: Annotated[
        bool, typer.Option("--emulated", help="engines without a model, with the times of --preset")
    ] = False,
    preset: Annotated[
        str,
        typer.Option(help="with --emulated: as of `weft replica`; several, comma-separated"),
    ] = "8b-a100",
    dilate: Annotated[
        float, typer.Option(help="with --emulated: factor on all times of the engines")
    ] = 1.0,
    scheduler: Annotated[
        str, typer.Option(help="with --emulated: weft, or stock for vLLM without the plugin")
    ] = "weft",
    demo: Annotated[
        int, typer.Option(min=0, max=2000, help="with --emulated: play this many programs at once")
    ] = 0,
) -> None:
    """Start engines and the gateway on this machine, and print the base URL.

    Every engine gets the arguments after `--` unchanged."""
    from weft_deploy.local.plan import Emulated
    from weft_deploy.local.up import UpOptions
    from weft_deploy.local.up import run as start

    if attach:
        exclude(
            context,
            "--attach",
            ("replicas", "model", "policy", "emulated"),
            "running engines keep the options that they were started with",
        )
    emulation = ("preset", "dilate", "scheduler", "demo")
    if not emulated and (found := given(context, emulation)):
        raise typer.BadParameter(f"{', '.join(found)}: only with --emulated")
    options = UpOptions(
        replicas=replicas,
        model=model,
        attach=tuple(attach or ()),
        redis_url=redis,
        policy=policy,
        balancer=balancer,
        host=host,
        port=port,
        slo=slo,
        keys=keys,
        engine_arguments=tuple(context.args),
        emulated=Emulated(preset, dilate, scheduler) if emulated else None,
        demo=demo,
    )
    raise typer.Exit(start(options))
