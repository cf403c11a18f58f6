"""The commands of the simulator: `weft bench sim`, `fit`, `agreement`, `workload`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from weft_bench.cli.options import (
    Arrivals,
    ArrivalsOrRecorded,
    JsonFile,
    Names,
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

simulator = typer.Typer()


def _balancers(text: str, option: str) -> tuple[str, ...]:
    found = names(text)
    if not found:
        raise typer.BadParameter("the list is empty", param_hint=option)
    return found


@command(simulator, "sim", "weft_bench.virtual.command")
@dataclass(frozen=True, slots=True)
class SimOptions:
    """Simulate: vLLM's scheduler, Weft's orders and routing, and a cost model of the engine."""

    workload: Annotated[
        str, Option(help="a name of `weft bench workload`, or file or folder of a real trace")
    ] = "dialogues"
    policies: Annotated[
        Orders, Option("--policy", help="orders to compare, comma-separated, or 'all'")
    ] = ("fcfs", "plas")
    balancers: Annotated[
        tuple[str, ...],
        Parsed(_balancers),
        Option("--balancer", help="balancers to compare, comma-separated"),
    ] = ("locality",)
    preset: Annotated[
        str,
        Option(
            help="8b, 14b, 32b or 70b on a100, h100, h200, l40 or a6000, such as 8b-a100, or a "
            "file of `weft bench fit`; several, comma-separated, for unequal replicas"
        ),
    ] = "8b-a100"
    replicas: Annotated[int, Option(min=1, max=256, help="engines to simulate")] = 1
    programs: Annotated[int, Option(min=1, help="programs to play")] = 200
    rate: Annotated[float, Option(min=0.0001, help="program arrivals per second")] = 1.0
    arrivals: Annotated[
        ArrivalsOrRecorded, Option(help="poisson, bursty, stepped, or recorded: the trace's")
    ] = "poisson"
    seeds: Annotated[int, Option(min=1, max=100, help="seeds to average over")] = 3
    slots: Annotated[int, Option(min=0, help="concurrent calls; 0: the preset's")] = 0
    kv_blocks: Annotated[int, Option(min=0, help="KV blocks; 0: the preset's")] = 0
    swap_gib: SwapGib = 0.0
    tags: Annotated[bool, Option("--tags/--no-tags", help="evict KV blocks by tag")] = True
    prefix_cache: Annotated[
        bool, Option("--prefix-cache/--no-prefix-cache", help="vLLM's prefix cache")
    ] = True
    first_quantum_s: Annotated[
        float,
        Option("--first-quantum", min=0.0, help="first queue's quantum, s; 0: the order's default"),
    ] = 0.0
    naive: Annotated[
        bool, Option("--naive", help="run one scheduler step per token; same result, slower")
    ] = False
    steady: Annotated[
        bool, Option("--steady", help="only count programs that arrive in the middle half")
    ] = False
    asynchronous: Annotated[
        bool,
        Option("--async-scheduling", help="schedule a step during the previous one; slower"),
    ] = False
    profile: Annotated[bool, Option("--profile", help="also print a CPU profile")] = False
    json_file: JsonFile = ""


@command(simulator, "fit", "weft_bench.costs.command")
@dataclass(frozen=True, slots=True)
class FitOptions:
    """Fit the simulator's cost model to the step times of a running engine."""

    engine: Annotated[str, Option(help="base URL of an idle engine of `weft replica`")]
    swap_engine: Annotated[
        str, Option(help="a second engine with one slot and swap, to fit the cost of swapping")
    ] = ""
    slots: Annotated[int, Option(min=1, help="its --max-num-seqs")] = 16
    step_tokens: Annotated[int, Option(min=1, help="its --max-num-batched-tokens")] = 2048
    kv_blocks: Annotated[int, Option(min=2, help="its KV blocks")] = 1000
    block_tokens: Annotated[int, Option(min=1, help="its --block-size")] = 32
    block_bytes: Annotated[int, Option(min=1, help="bytes of one of its KV blocks")] = 65_536
    context: Annotated[int, Option(min=64, help="its --max-model-len")] = 8192
    rounds: Annotated[int, Option(min=1, max=100, help="rounds; the fastest is used")] = 5
    json_file: Annotated[
        str,
        Option(
            "--json", callback=writable, help="write the model here, for `weft bench sim --preset`"
        ),
    ] = ""


def _cases(text: str, option: str) -> tuple[str, ...]:
    from weft_bench.agreement.scenes import CASES

    return some_of(text, [case.name for case in CASES], option)


@command(simulator, "agreement", "weft_bench.agreement.command")
@dataclass(frozen=True, slots=True)
class AgreementOptions:
    """Compare virtual time with emulated engines: same programs, costs and memory.

    Exit status 1: means or rankings of orders differ, or the figures depend on the dilation.
    """

    cases: Annotated[
        tuple[str, ...], Parsed(_cases), Option(help="cases, comma-separated, or 'all'")
    ] = ("plentiful", "scarce", "swap", "warm")
    policies: Annotated[Orders, Option("--policy", help="orders, comma-separated, or 'all'")] = (
        "fcfs",
        "program_fifo",
        "plas",
        "mlfq",
        "resident",
    )
    preset: Annotated[
        str, Option(help="costs: a preset such as 8b-a100, or a file of `weft bench fit`")
    ] = "8b-a100"
    seeds: Annotated[int, Option(min=1, max=100, help="seeds of programs and arrivals")] = 3
    virtual_plays: Annotated[
        int, Option(min=2, max=100, help="virtual plays of each scene, with other delays")
    ] = 8
    case_dilate: Annotated[
        float, Option(min=0.01, help="factor on all times of the emulated engines in the cases")
    ] = 1.0
    dilate: Annotated[
        tuple[int, ...],
        Parsed(counts),
        Option(help="dilations to compare, comma-separated"),
    ] = (2, 4)
    json_file: JsonFile = ""


@command(simulator, "workload", "weft_bench.workloads.command")
@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """Write a workload to a file that `bench replay` plays, or describe workloads."""

    name: Annotated[str, Option(help="name of a workload generated from statistics")] = ""
    programs: Annotated[
        int, Option(min=0, help="programs; 0: 100 to write, 1000 to describe, all of a file")
    ] = 0
    seed: Annotated[int, Option(help="random seed")] = 0
    rate: Annotated[float, Option(min=0.001, help="program arrivals per second")] = 1.0
    arrivals: Annotated[Arrivals, Option(help="poisson, bursty or stepped")] = "poisson"
    out: Annotated[
        str, Option(callback=writable, help="write the workload here; .xz is compressed")
    ] = ""
    describe: Annotated[
        Names, Option(help="files or names of workloads, comma-separated, or 'all'")
    ] = ()
    shrink: Annotated[int, Option(min=1, help="divide lengths of traces without text by this")] = 1
    markdown: Annotated[bool, Option(help="print one Markdown row per workload")] = False
    json_file: JsonFile = ""
