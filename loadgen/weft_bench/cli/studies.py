"""The commands `weft bench study`, `fit` and `workload`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from weft_bench.cli.options import (
    ArrivalsOrRecorded,
    JsonFile,
    Names,
    Option,
    Orders,
    Parsed,
    command,
    counts,
    some_of,
    writable,
)

studies = typer.Typer()


@studies.command("study")
def study(
    name: Annotated[
        str, typer.Argument(help="a study or the path of its file; none: list the studies")
    ] = "",
    quick: Annotated[bool, Option("--quick", help="a small form that shows that it runs")] = False,
    seeds: Annotated[int, Option(min=0, max=100, help="only the first seeds; 0: all")] = 0,
    jobs: Annotated[int, Option(min=0, max=256, help="cells measured at once; 0: per core")] = 0,
    json_file: JsonFile = "",
    page: Annotated[
        str, Option(callback=writable, help="write the tables to this Markdown file")
    ] = "",
) -> None:
    """Repeat a figure of a paper in virtual time, with the baseline in the same run."""
    from weft_bench.studies.command import StudyOptions, run

    options = StudyOptions(name, quick, seeds, jobs, json_file, page)
    raise typer.Exit(run(options))


def _cases(text: str, option: str) -> tuple[str, ...]:
    from weft_bench.agreement.scenes import CASES

    return some_of(text, [case.name for case in CASES], option)


def _fit(context: typer.Context, options: FitOptions) -> FitOptions:
    if bool(options.engine) == options.agreement:
        raise typer.BadParameter("use --engine, or --agreement alone")
    if options.agreement and "recorded" in options.cases and not options.data:
        raise typer.BadParameter("the case recorded needs --data")
    return options


@command(studies, "fit", "weft_bench.costs.command", check=_fit)
@dataclass(frozen=True, slots=True)
class FitOptions:
    """Fit the cost model to the step times of a running engine; or with --agreement compare
    virtual time with emulated engines, on the same programs, costs and memory.

    Exit status 1: means or rankings of orders differ, or the figures depend on the dilation.
    """

    engine: Annotated[str, Option(help="base URL of an idle engine of `weft replica`")] = ""
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
    agreement: Annotated[
        bool, Option("--agreement", help="compare; the following options are for it")
    ] = False
    cases: Annotated[
        tuple[str, ...], Parsed(_cases), Option(help="cases, comma-separated, or 'all'")
    ] = ("plentiful", "scarce", "swap", "warm")
    data: Annotated[str, Option(help="folder of the recorded workloads, for the case recorded")] = (
        ""
    )
    sessions: Annotated[int, Option(min=1, help="sessions of the case recorded")] = 12
    calls: Annotated[int, Option(min=1, help="calls that each of them makes at most")] = 16
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
        tuple[int, ...], Parsed(counts), Option(help="dilations to compare, comma-separated")
    ] = (2, 4)
    json_file: JsonFile = ""


def _workload(context: typer.Context, options: WorkloadOptions) -> WorkloadOptions:
    outs = [one for one in (options.out, options.aiperf_out, options.weka_out) if one]
    if bool(options.name) != bool(outs) or len(outs) > 1:
        what = "--name requires one of --out, --aiperf-out and --weka-out, and they require it"
        raise typer.BadParameter(what)
    if options.aiperf_results and options.name:
        raise typer.BadParameter("use --aiperf-results alone")
    return options


@command(studies, "workload", "weft_bench.workloads.command", check=_workload)
@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """Write a workload to a file, also for NVIDIA's aiperf, or describe workloads."""

    name: Annotated[
        str, Option(help="a workload generated from statistics; for aiperf also a trace")
    ] = ""
    programs: Annotated[
        int, Option(min=0, help="programs; 0: 100 to write, 1000 to describe, all of a file")
    ] = 0
    seed: Annotated[int, Option(help="random seed")] = 0
    rate: Annotated[float, Option(min=0.001, help="program arrivals per second")] = 1.0
    arrivals: Annotated[
        ArrivalsOrRecorded, Option(help="poisson, bursty, stepped, or recorded: the trace's")
    ] = "poisson"
    out: Annotated[
        str, Option(callback=writable, help="write the workload here; .xz is compressed")
    ] = ""
    describe: Annotated[
        Names, Option(help="files or names of workloads, comma-separated, or 'all'")
    ] = ()
    markdown: Annotated[bool, Option(help="print one Markdown row per workload")] = False
    aiperf_out: Annotated[
        str, Option(callback=writable, help="write the workload here, as a mooncake_trace")
    ] = ""
    weka_out: Annotated[
        str,
        Option(
            help="write recorded coding sessions into this new folder, as files of a weka_trace, "
            "which aiperf's scenario inferencex-agentx-mvp plays"
        ),
    ] = ""
    calls: Annotated[int, Option(min=0, help="aiperf: first calls of a program; 0: all")] = 0
    context: Annotated[int, Option(min=64, help="aiperf: cut programs at about these tokens")] = (
        131_072
    )
    dilate: Annotated[
        float, Option(min=0.001, help="aiperf: factor on arrivals and gaps, as on engines' times")
    ] = 1.0
    aiperf_results: Annotated[
        str, Option(help="read this profile_export.jsonl of aiperf; print the times of programs")
    ] = ""
    json_file: JsonFile = ""
