"""The commands that load a gateway over HTTP: `weft bench replay`, `overhead`, `overlap`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final

import typer
from weft_deploy.options import exclude

from weft_bench.cli.options import (
    ArrivalsOrRecorded,
    BaseUrl,
    JsonFile,
    Option,
    Orders,
    Parsed,
    SwapGib,
    command,
    counts,
    names,
    some_of,
    writable,
)

load = typer.Typer()

_TAGS: Final = {"on": True, "off": False}


def _tags(text: str, option: str) -> tuple[bool, ...]:
    return tuple(_TAGS[name] for name in some_of(text, tuple(_TAGS), option))


def _peers(text: str, option: str) -> tuple[str, ...]:
    return tuple(name for name in names(text) if name != "none")


def _check_replay(context: typer.Context, options: ReplayOptions) -> ReplayOptions:
    if options.base_url:
        exclude(context, "--base-url", options.OF_OWN_ENGINES, "its engines are running")
    return options


@command(load, "replay", "weft_bench.replay.command", check=_check_replay)
@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Replay agent dialogues as closed-loop programs, once per policy, on the same replicas."""

    # Options of engines that the command starts itself.
    OF_OWN_ENGINES: ClassVar = (
        "replicas", "slots", "kv_blocks", "max_model_len", "swap_gib", "first_quantum_s",
    )  # fmt: skip

    trace: Annotated[str, Option(help="file or folder of a real trace")] = ""
    policies: Annotated[
        Orders,
        Option(
            "--policy",
            help="orders to compare, comma-separated, or 'all'; the first is the baseline",
        ),
    ] = ("fcfs", "plas")
    base_url: BaseUrl = ""
    programs: Annotated[int, Option(min=1, help="programs to play")] = 24
    rate: Annotated[float, Option(min=0.001, help="program arrivals per second")] = 1.0
    arrivals: Annotated[
        ArrivalsOrRecorded,
        Option(help="poisson, bursty, stepped, or recorded: the trace's, rescaled"),
    ] = "poisson"
    seed: Annotated[int, Option(help="seed of arrivals and of the sample")] = 0
    gap_scale: Annotated[float, Option(min=0.0, help="factor on tool gaps")] = 1.0
    max_gap_s: Annotated[float, Option("--max-gap", min=0.0, help="limit of a gap, seconds")] = 10.0
    output_scale: Annotated[float, Option(min=0.01, help="factor on answers' length")] = 1.0
    replicas: Annotated[int, Option(min=1, help="engines to start")] = 2
    slots: Annotated[int, Option(min=1, help="calls that an engine runs at once")] = 4
    kv_blocks: Annotated[int, Option(min=0, help="KV blocks of an engine; 0: vLLM's default")] = 0
    max_model_len: Annotated[int, Option(min=0, help="longest context, tokens; 0: the model's")] = 0
    swap_gib: SwapGib = 0.0
    # Each policy is played once for each value.
    tags: Annotated[
        tuple[bool, ...],
        Parsed(_tags, default="on"),
        Option(help="evict KV blocks by tag: on, off, or 'off,on' for both"),
    ] = (True,)
    first_quantum_s: Annotated[
        float,
        Option(
            "--first-quantum", min=0.001, help="first queue's quantum, s; small for the demo model"
        ),
    ] = 0.1
    json_file: JsonFile = ""
    plot: Annotated[str, Option(callback=writable, help="write a PNG here")] = ""


@command(load, "overhead", "weft_bench.overhead.command")
@dataclass(frozen=True, slots=True)
class OverheadOptions:
    """Measure requests/s and added latency of Weft and its peers with a fast mock engine."""

    peers: Annotated[
        tuple[str, ...],
        Parsed(_peers),
        Option(
            help="peers, comma-separated; 'none': Weft alone, 'bare': Weft without lineage, tags "
            "and receipts",
        ),
    ] = ("litellm", "vllm-router")
    concurrency: Annotated[
        tuple[int, ...], Parsed(counts), Option(help="concurrent calls, comma-separated")
    ] = (1, 8, 64)
    # A cell has at least this many requests and takes at least `seconds`. Otherwise the cell of a
    # fast proxy would be too short to rise above noise.
    requests: Annotated[int, Option(min=10, max=100_000, help="requests per cell")] = 2000
    seconds: Annotated[float, Option(min=0, max=60, help="minimum time of a cell, seconds")] = 2.0
    rounds: Annotated[int, Option(min=1, max=20, help="rounds; the median is used")] = 3
    session: Annotated[
        bool, Option("--session", help="calls name their program, as most agents' do")
    ] = False
    distinct: Annotated[bool, Option("--distinct", help="prompts differ, as in first turns")] = (
        False
    )
    plugin: Annotated[
        bool, Option("--plugin", help="engines report Weft's plugin; calls then carry tags")
    ] = False
    json_file: JsonFile = ""


def _check_overlap(context: typer.Context, options: OverlapOptions) -> OverlapOptions:
    if options.base_url:
        exclude(context, "--base-url", options.OF_OWN_ENGINES, "its engines are running")
    if options.quick:
        exclude(context, "--quick", ("requests", "seeds", "rate"), "--quick sets them")
        options = replace(options, requests=3, seeds=1, rate=1.0)
    return options


@command(load, "overlap", "weft_bench.overlap.command", check=_check_overlap)
@dataclass(frozen=True, slots=True)
class OverlapOptions:
    """Measure agents' requests without and with prompt splitting, streaming dispatch and tags."""

    # Options of engines that the command starts itself.
    OF_OWN_ENGINES: ClassVar = ("replicas", "max_model_len", "kv_blocks")

    base_url: BaseUrl = ""
    requests: Annotated[int, Option(min=1, help="requests per seed")] = 12
    rate: Annotated[
        float, Option(min=0.0, help="requests per second; 0: as many at once as in the paper")
    ] = 0.0
    seeds: Annotated[int, Option(min=1, help="sets of requests, one after another")] = 4
    seed: Annotated[int, Option(help="the first seed")] = 0
    changed: Annotated[
        float, Option(min=0, max=1, help="share of turns with another system prompt")
    ] = 1.0
    replicas: Annotated[int, Option(min=1, help="engines to start")] = 1
    max_model_len: Annotated[
        int, Option(min=8192, help="longest context, tokens; scales the prompts")
    ] = 32_768
    kv_blocks: Annotated[
        int, Option(min=0, help="KV blocks of an engine; 0: 12 median prompts, as in paper")
    ] = 0
    quick: Annotated[
        bool, Option("--quick", help="3 requests, nearly at once; a minute after startup")
    ] = False
    json_file: JsonFile = ""
