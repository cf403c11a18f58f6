"""The command `weft bench peers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import typer
from weft_deploy.options import PassThroughCommand, given

from weft_bench.cli.options import (
    JsonFile,
    Names,
    Option,
    Orders,
    choice,
    command,
)

peers = typer.Typer()

EMULATED: Final = "emulated"
REAL: Final = "real"
GPU: Final = "gpu"
ENGINES: Final = (EMULATED, REAL, GPU)
# Without `--replicas`, `--kv-blocks` and `--slots`. 0 blocks: as many as the memory holds.
_SIZES: Final = {
    REAL: {"replicas": 2, "kv_blocks": 500},
    GPU: {"replicas": 1, "kv_blocks": 0, "slots": 256},
}


def _check_peers(context: typer.Context, options: PeersOptions) -> PeersOptions:
    options = replace(options, more=tuple(context.args))
    if options.engines != EMULATED:
        of_emulated = ("preset", "dilate", "load", "host_kv_gib", "turn_target_scale")
        _exclude(context, of_emulated, "only with --engines emulated")
        sizes = _SIZES[options.engines]
        wanted: dict[str, Any] = {n: s for n, s in sizes.items() if not given(context, (n,))}
        options = replace(options, **wanted)
    if options.turn_target_scale and options.dilate != 1:
        raise typer.BadParameter(
            "--turn-target-scale needs --dilate 1: the gateway counts deadlines in real seconds"
        )
    if options.rows:
        of_programs = ("fronts", "orders", "workloads", "load", "chats", "join", "quick")
        _exclude(context, of_programs, "not with --rows")
    if options.quick:
        _exclude(context, ("seeds", "workloads", "programs"), "--quick sets them")
        long_gaps = options.long_gaps if given(context, ("long_gaps",)) else 0.0
        options = replace(options, seeds=1, long_gaps=long_gaps)
    return options


def _exclude(context: typer.Context, names: Sequence[str], why: str) -> None:
    if found := given(context, names):
        raise typer.BadParameter(f"{', '.join(found)}: {why}")


@command(peers, "peers", "weft_bench.peers.command", check=_check_peers, cls=PassThroughCommand)
@dataclass(frozen=True, slots=True)
class PeersOptions:
    """Compare vllm-router, smg, sglang-router, LiteLLM and Weft on the same replicas.

    Every engine gets the arguments after `--` unchanged."""

    data: Annotated[str, Option(help="folder of the recorded workloads")]
    engines: Annotated[
        str,
        choice("weft_bench.cli.peers:ENGINES"),
        Option(
            help="emulated; real: vLLM with the demo model on a CPU; gpu: vLLM on an NVIDIA GPU, "
            "with the shape of a model and dummy weights"
        ),
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
    replicas: Annotated[int, Option(min=1, max=64, help="replicas; real: 2; gpu: 1")] = 3
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
    slots: Annotated[
        int, Option(min=1, help="calls that a replica runs at once; default with gpu: 256")
    ] = 4
    kv_blocks: Annotated[
        int,
        Option(
            min=64,
            help="KV blocks of a replica; default with real: 500, with gpu: what the memory holds",
        ),
    ] = 3000
    shape: Annotated[
        str, choice("weft_bench.peers.shapes:SHAPES"), Option(help="gpu: 8b or 1b")
    ] = "8b"
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
        int,
        Option(
            min=0,
            help="programs of a workload; with --rows pages of six questions; 0: the workload's "
            "number",
        ),
    ] = 0
    rows: Annotated[
        bool,
        Option(
            "--rows",
            help="instead of programs, play batch rows of TAT-QA by `weft run` and LangGraph",
        ),
    ] = False
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
    # Arguments of every engine, as given after `--`.
    more: tuple[str, ...] = ()
