"""The commands that measure the gateway, the scheduler and their parts: `weft bench overhead`,
`overlap`, `scheduler`, `swap`, `lineage`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar

import typer
from weft_deploy.options import exclude

from weft_bench.cli.options import (
    BaseUrl,
    JsonFile,
    Names,
    Option,
    Parsed,
    command,
    counts,
    names,
)

parts = typer.Typer()


def _peers(text: str, option: str) -> tuple[str, ...]:
    return tuple(name for name in names(text) if name != "none")


def _sizes(text: str, option: str) -> tuple[int, ...]:
    units = {"k": 1_000, "m": 1_000_000}
    try:
        found = [
            int(float(part.rstrip("km")) * units.get(part[-1:], 1)) for part in names(text.lower())
        ]
    except ValueError:
        found = [0]
    if any(size < 1_000 for size in found):
        raise typer.BadParameter(
            f"{text!r} is not a list of sizes of at least 1k, such as 50k,2m", param_hint=option
        )
    return tuple(found)


def _check_overhead(context: typer.Context, options: OverheadOptions) -> OverheadOptions:
    if options.bodies:
        exclude(
            context, "--bodies", ("concurrency", "seconds", "session", "distinct"), "it sets them"
        )
    elif options.growing:
        raise typer.BadParameter("needs --bodies", param_hint="--growing")
    return options


@command(parts, "overhead", "weft_bench.overhead.command", check=_check_overhead)
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
    bodies: Annotated[
        tuple[int, ...],
        Parsed(_sizes),
        Option(
            help="measure a coding agent's streamed calls with bodies of these sizes instead, with "
            "and without a session id, such as 50k,450k,2m; then --requests are the calls of a "
            "conversation",
        ),
    ] = ()
    growing: Annotated[
        bool, Option("--growing", help="each body begins with the messages of the one before")
    ] = False
    json_file: JsonFile = ""


def _check_overlap(context: typer.Context, options: OverlapOptions) -> OverlapOptions:
    if options.base_url:
        exclude(context, "--base-url", options.OF_OWN_ENGINES, "its engines are running")
    if options.quick:
        exclude(context, "--quick", ("requests", "seeds", "rate"), "--quick sets them")
        options = replace(options, requests=3, seeds=1, rate=1.0)
    return options


@command(parts, "overlap", "weft_bench.overlap.command", check=_check_overlap)
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


@command(parts, "scheduler", "weft_bench.micro.scheduler.command")
@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Time schedule() per step, beside vLLM's own scheduler with its priority policy."""

    policy: Annotated[str, Option(help="order in the engine: fcfs, plas ...")] = "resident"
    running: Annotated[int, Option(min=1, max=4096, help="calls in the batch")] = 256
    waiting: Annotated[int, Option(min=1, max=100_000, help="calls in the queue")] = 1000
    rounds: Annotated[int, Option(min=1, max=100, help="rounds; medians and their spread")] = 5
    steps: Annotated[int, Option(min=1, max=400, help="steps per round")] = 200
    # Steps before the measured ones.
    warm_up: int = 300
    context: Annotated[
        int, Option(min=512, max=100_000, help="mean context of programs that return, tokens")
    ] = 3000
    blocks: Annotated[int, Option(min=64, help="KV blocks of the case in which they return")] = (
        60_000
    )
    tenants: Annotated[int, Option(min=1, max=100_000, help="tenants that own the calls")] = 1
    asynchronous: Annotated[
        bool, Option("--async/--no-async", help="two steps in flight, as on a GPU")
    ] = True
    json_file: JsonFile = ""


@command(parts, "swap", "weft_bench.micro.swap.command")
@dataclass(frozen=True, slots=True)
class SwapOptions:
    """Copy KV blocks between GPU and host memory in several ways; without a GPU, the CPU path."""

    blocks: Annotated[
        tuple[int, ...],
        Parsed(partial(counts, empty=True)),
        Option(help="blocks per swap, comma-separated; default: depends on the device"),
    ] = ()
    rounds: Annotated[int, Option(min=1, max=100, help="rounds; the median is used")] = 7
    json_file: JsonFile = ""


@command(parts, "lineage", "weft_bench.micro.lineage.command")
@dataclass(frozen=True, slots=True)
class LineageOptions:
    """Measure how well lineage joins the calls of recorded programs without keys, and its cost."""

    data: Annotated[str, Option(help="folder of the recorded programs: tau_airline, agent_calls")]
    sets: Annotated[Names, Option(help="sets, comma-separated; default: all")] = ()
    seed: Annotated[int, Option(min=0, help="seed of program starts")] = 0
    rounds: Annotated[int, Option(min=1, max=1000, help="timed calls of each kind")] = 100
    names: Annotated[bool, Option(help="give the calls names that mislead, instead")] = False
    json_file: JsonFile = ""
