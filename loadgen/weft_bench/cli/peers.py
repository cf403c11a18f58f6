"""The command `weft bench peers`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Final

import typer
from weft_deploy.options import exclude, given

from weft_bench.cli.options import (
    JsonFile,
    Names,
    Option,
    Orders,
    choice,
    command,
    writable,
)

peers = typer.Typer()

EMULATED: Final = "emulated"
REAL: Final = "real"
ENGINES: Final = (EMULATED, REAL)


def _check_peers(context: typer.Context, options: PeersOptions) -> PeersOptions:
    if options.engines == REAL:
        only_emulated = ("preset", "dilate", "load", "host_kv_gib", "turn_target_scale")
        exclude(context, "--engines real", only_emulated, "they apply to emulated engines")
        options = replace(
            options,
            replicas=options.replicas if given(context, ("replicas",)) else 2,
            kv_blocks=options.kv_blocks if given(context, ("kv_blocks",)) else 500,
        )
    if options.turn_target_scale and options.dilate != 1:
        raise typer.BadParameter(
            "--turn-target-scale needs --dilate 1: the gateway counts deadlines in real seconds"
        )
    if options.quick:
        sets = ("seeds", "workloads", "programs")
        exclude(context, "--quick", sets, "--quick sets them")
        long_gaps = options.long_gaps if given(context, ("long_gaps",)) else 0.0
        options = replace(options, seeds=1, long_gaps=long_gaps)
    return options


@command(peers, "peers", "weft_bench.peers.command", check=_check_peers)
@dataclass(frozen=True, slots=True)
class PeersOptions:
    """Compare vllm-router, smg, sglang-router, LiteLLM and Weft on the same replicas."""

    data: Annotated[str, Option(help="folder of the recorded workloads")]
    engines: Annotated[
        str,
        choice("weft_bench.cli.peers:ENGINES"),
        Option(help="emulated, or real: vLLM with the demo model on a CPU"),
    ] = EMULATED
    fronts: Annotated[
        Names, Option(help="rows, comma-separated, such as weft/plas; default: all")
    ] = ()
    orders: Annotated[
        Orders, Option(help="orders that Weft runs; calls without a key use the last")
    ] = ("fcfs", "plas", "resident")
    workloads: Annotated[
        Names,
        Option(
            help="coding_sessions, tau_airline, tree_of_thoughts; emulated: also miniswe, magagent "
            "and mooncake; default: all of these; only by name: text2sql-3, which is generated"
        ),
    ] = ()
    load: Annotated[
        float,
        Option(
            min=0,
            help="emulated: rate of arrivals relative to the replicas' capacity for these programs "
            "in virtual time; 0: the workload's own rate",
        ),
    ] = 0.0
    chats: Annotated[
        float, Option(min=0, help="arrivals of single chats beside the programs, per second")
    ] = 0.0
    seeds: Annotated[
        int, Option(min=0, max=100, help="sets of programs and arrivals; 0 plays nothing")
    ] = 3
    first_seed: Annotated[int, Option(min=0, help="the first of them")] = 0
    replicas: Annotated[int, Option(min=1, max=64, help="replicas; real: 2")] = 3
    preset: Annotated[
        str,
        Option(
            help="emulated: engine, such as 8b-a100, or several, comma-separated, which replicas "
            "take in turn"
        ),
    ] = "8b-a100"
    turn_target_scale: Annotated[
        float,
        Option(
            min=0,
            help="emulated: give turns a target, of this many times their duration alone on the "
            "first engine; 0: none",
        ),
    ] = 0.0
    slots: Annotated[int, Option(min=1, help="calls that a replica runs at once")] = 4
    kv_blocks: Annotated[
        int, Option(min=64, help="KV blocks of a replica; default with real: 500")
    ] = 3000
    host_kv_gib: Annotated[
        float,
        Option(
            min=0,
            help="host memory for the KV blocks of each replica, through vLLM's "
            "OffloadingConnector, GiB; 0: none",
        ),
    ] = 0.0
    dilate: Annotated[
        float, Option(min=0.001, help="emulated: factor on all times of the engines")
    ] = 1.0
    programs: Annotated[
        int, Option(min=0, help="programs of a workload; 0: the workload's number")
    ] = 0
    long_gaps: Annotated[
        float, Option(min=0, max=1, help="share of programs whose tools are slow")
    ] = 0.1
    gap_factor: Annotated[float, Option(min=1, help="factor on their tool times")] = 30.0
    quick: Annotated[
        bool,
        Option("--quick", help="one small workload with installed peers; takes minutes"),
    ] = False
    join: Annotated[
        Names,
        Option(
            help="earlier figures, comma-separated files; their plays are kept and not repeated"
        ),
    ] = ()
    install: Annotated[bool, Option("--install/--no-install", help="install missing peers")] = True
    json_file: JsonFile = ""
    plot: Annotated[str, Option(callback=writable, help="write an SVG here")] = ""
