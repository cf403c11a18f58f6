"""The command `weft bench aiperf`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from weft_bench.cli.options import ArrivalsOrRecorded, Option, command, writable

aiperf = typer.Typer()


def _check(context: typer.Context, options: AiperfOptions) -> AiperfOptions:
    if bool(options.out) == bool(options.results):
        raise typer.BadParameter("use --workload with --out, or --results alone")
    if bool(options.out) != bool(options.workload):
        raise typer.BadParameter("--workload and --out require each other")
    return options


@command(aiperf, "aiperf", "weft_bench.aiperf.command", check=_check)
@dataclass(frozen=True, slots=True)
class AiperfOptions:
    """Write a workload for NVIDIA's aiperf, or read times of programs from its results."""

    workload: Annotated[
        str, Option(help="a name of `weft bench workload`, or file or folder of a trace")
    ] = ""
    out: Annotated[
        str, Option(callback=writable, help="write the workload here, as a mooncake_trace")
    ] = ""
    results: Annotated[
        str, Option(help="read this profile_export.jsonl; print the times of programs")
    ] = ""
    programs: Annotated[int, Option(min=1, help="programs")] = 24
    calls: Annotated[int, Option(min=0, help="first calls of a program; 0: all")] = 0
    context: Annotated[int, Option(min=64, help="cut programs at about this number of tokens")] = (
        131_072
    )
    rate: Annotated[float, Option(min=0.0001, help="program arrivals per second")] = 1.0
    arrivals: Annotated[
        ArrivalsOrRecorded, Option(help="poisson, bursty, stepped, or recorded: the trace's")
    ] = "poisson"
    seed: Annotated[int, Option(help="seed of arrivals and of the sample")] = 0
    shrink: Annotated[int, Option(min=1, help="divide lengths of traces without text by this")] = 16
    dilate: Annotated[
        float, Option(min=0.001, help="factor on arrivals and gaps, as on the engines' times")
    ] = 1.0
