"""The comparison with other proxies: `weft bench peers`."""

from __future__ import annotations

from typing import Annotated

import typer

from weft_gateway.options import exclude, one_name, one_of, writable

peers = typer.Typer()


@peers.command("peers")
def bench_peers(
    context: typer.Context,
    data: Annotated[str, typer.Option(help="folder of the recorded workloads")],
    engines: Annotated[str, typer.Option(help="simulated, or real: vLLM here")] = "simulated",
    fronts: Annotated[
        str, typer.Option(help="rows, comma-separated, as weft/plas; default: all")
    ] = "",
    orders: Annotated[
        str, typer.Option(help="orders under which ours stands; without a key under the last")
    ] = "fcfs,plas,warm_plas",
    workloads: Annotated[
        str, typer.Option(help="coding_sessions, tau_airline, tree_of_thoughts; default: all")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, max=100, help="sets of programs and arrivals")] = 3,
    replicas: Annotated[int, typer.Option(min=1, max=64, help="replicas; real: 2")] = 3,
    preset: Annotated[str, typer.Option(help="simulated: engine, as 8b-a100")] = "8b-a100",
    slots: Annotated[int, typer.Option(min=1, help="calls that a replica runs at once")] = 4,
    kv_blocks: Annotated[
        int, typer.Option(min=64, help="KV blocks of a replica; real: 500")
    ] = 3000,
    speed_up: Annotated[float, typer.Option(help="simulated: all times divided by this")] = 5.0,
    programs: Annotated[
        int, typer.Option(min=0, help="programs of a workload; 0: its own number")
    ] = 0,
    long_gaps: Annotated[
        float, typer.Option(min=0, max=1, help="share of programs whose tools are slow")
    ] = 0.1,
    gap_factor: Annotated[float, typer.Option(min=1, help="how many times as slow")] = 30.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="one small workload, peers that are installed: a minute")
    ] = False,
    install: Annotated[
        bool, typer.Option("--install/--no-install", help="install peers that are not there")
    ] = True,
    json_file: Annotated[
        str, typer.Option("--json", callback=writable, help="write the figures here")
    ] = "",
    plot: Annotated[str, typer.Option(callback=writable, help="write an SVG here")] = "",
    page: Annotated[
        str, typer.Option(help="a page with a section of these engines, as docs/peers.md")
    ] = "",
) -> None:
    """Programs through vllm-router, smg, sglang-router, LiteLLM and ours, on the same replicas."""
    from weft_bench.peers.command import REAL, SIMULATED, PeersOptions, run
    from weft_engine.wire import ORDER_NAMES

    from weft_gateway.options import given

    engines = one_name(engines, (SIMULATED, REAL), "--engines")
    if engines == REAL:
        exclude(context, "--engines real", ("preset", "speed_up"), "its engines are not simulated")
        replicas = replicas if given(context, ("replicas",)) else 2
        kv_blocks = kv_blocks if given(context, ("kv_blocks",)) else 500
        speed_up = 1.0
    if quick:
        exclude(context, "--quick", ("seeds", "workloads", "programs", "speed_up"), "it sets them")
        seeds, long_gaps = 1, long_gaps if given(context, ("long_gaps",)) else 0.0
    options = PeersOptions(
        data=data,
        engines=engines,
        fronts=tuple(name.strip() for name in fronts.split(",") if name.strip()),
        orders=one_of(orders, ORDER_NAMES, "--orders"),
        workloads=tuple(name.strip() for name in workloads.split(",") if name.strip()),
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
