"""The command `weft bench peers`."""

from __future__ import annotations

from typing import Annotated

import typer
from weft_deploy.options import exclude, given

from weft_bench.cli.options import JsonFile, names, one_of, some_of, writable

peers = typer.Typer()


@peers.command("peers")
def bench_peers(
    context: typer.Context,
    data: Annotated[str, typer.Option(help="folder of the recorded workloads")],
    engines: Annotated[
        str, typer.Option(help="simulated, or real: vLLM on this machine")
    ] = "simulated",
    fronts: Annotated[
        str, typer.Option(help="rows, comma-separated, such as weft/plas; default: all")
    ] = "",
    orders: Annotated[
        str, typer.Option(help="orders that Weft runs; calls without a key use the last")
    ] = "fcfs,plas,warm_plas",
    workloads: Annotated[
        str, typer.Option(help="coding_sessions, tau_airline, tree_of_thoughts; default: all")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, max=100, help="sets of programs and arrivals")] = 3,
    replicas: Annotated[int, typer.Option(min=1, max=64, help="replicas; real: 2")] = 3,
    preset: Annotated[str, typer.Option(help="simulated: engine, such as 8b-a100")] = "8b-a100",
    slots: Annotated[int, typer.Option(min=1, help="calls that a replica runs at once")] = 4,
    kv_blocks: Annotated[
        int, typer.Option(min=64, help="KV blocks of a replica; default with real: 500")
    ] = 3000,
    speed_up: Annotated[float, typer.Option(help="simulated: divide all times by this")] = 5.0,
    programs: Annotated[
        int, typer.Option(min=0, help="programs of a workload; 0: the workload's number")
    ] = 0,
    long_gaps: Annotated[
        float, typer.Option(min=0, max=1, help="share of programs whose tools are slow")
    ] = 0.1,
    gap_factor: Annotated[float, typer.Option(min=1, help="factor on their tool times")] = 30.0,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="one small workload with installed peers; takes a minute"),
    ] = False,
    install: Annotated[
        bool, typer.Option("--install/--no-install", help="install missing peers")
    ] = True,
    json_file: JsonFile = "",
    plot: Annotated[str, typer.Option(callback=writable, help="write an SVG here")] = "",
    page: Annotated[
        str,
        typer.Option(help="page to update with these engines' section, such as docs/peers.md"),
    ] = "",
) -> None:
    """Compare vllm-router, smg, sglang-router, LiteLLM and Weft on the same replicas."""
    from weft_engine.wire import ORDER_NAMES

    from weft_bench.peers.command import REAL, SIMULATED, PeersOptions, run

    engines = one_of(engines, (SIMULATED, REAL), "--engines")
    if engines == REAL:
        exclude(
            context, "--engines real", ("preset", "speed_up"), "they apply to simulated engines"
        )
        replicas = replicas if given(context, ("replicas",)) else 2
        kv_blocks = kv_blocks if given(context, ("kv_blocks",)) else 500
        speed_up = 1.0
    if quick:
        exclude(
            context, "--quick", ("seeds", "workloads", "programs", "speed_up"), "--quick sets them"
        )
        seeds, long_gaps = 1, long_gaps if given(context, ("long_gaps",)) else 0.0
    options = PeersOptions(
        data=data,
        engines=engines,
        fronts=names(fronts),
        orders=some_of(orders, ORDER_NAMES, "--orders"),
        workloads=names(workloads),
        seeds=seeds,
        replicas=replicas,
        preset=preset,
        slots=slots,
        kv_blocks=kv_blocks,
        speed_up=speed_up,
        programs=programs,
        long_gaps=long_gaps,
        gap_factor=gap_factor,
        quick=quick,
        install=install,
        json_file=json_file,
        plot=plot,
        page=page,
    )
    raise typer.Exit(run(options))
