"""The command `weft bench gpu`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

import typer
from weft_deploy.options import PassThroughCommand

from weft_bench.cli.options import Option, Parsed, choice, command, one_of, some_of, writable

gpu = typer.Typer()

# The order of playing: a run that ends early has the most important pair.
PLAYED: Final = ("vllm-opt", "ours", "mlfq", "vllm")
WORKLOADS: Final = ("sharegpt", "bfcl", "lats", "mixed")
LOADS: Final = (0.5, 0.8, 1.0)


def _systems(text: str, option: str) -> tuple[str, ...]:
    return () if text == "none" else some_of(text, PLAYED, option)


def rates(text: str, option: str) -> dict[str, float]:
    """Parse programs per second by workload, such as sharegpt=1.5,bfcl=4. Raises
    typer.BadParameter.
    """
    found = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        name, _, value = part.partition("=")
        try:
            rate = float(value)
        except ValueError:
            rate = 0.0
        if not 0 < rate < float("inf"):
            raise typer.BadParameter(f"{part!r} is no rate such as sharegpt=1.5", param_hint=option)
        found[one_of(name, WORKLOADS, option)] = rate
    return found


def shares(text: str, option: str) -> tuple[float, ...]:
    """Parse comma-separated numbers above 0 and drop duplicates. Raises typer.BadParameter."""
    try:
        found = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        found = ()
    if not found or any(not 0 < share < float("inf") for share in found):
        raise typer.BadParameter(
            f"{text!r} is not a list of loads such as 0.5,0.8,1", param_hint=option
        )
    return found


def _check_gpu(context: typer.Context, options: GpuOptions) -> GpuOptions:
    if not options.systems and not options.fit_file:
        raise typer.BadParameter("'none' needs --fit")
    return replace(options, more=tuple(context.args))


@command(gpu, "gpu", "weft_bench.gpu.command", check=_check_gpu, cls=PassThroughCommand)
@dataclass(frozen=True, slots=True)
class GpuOptions:
    """Measure vLLM, vLLM-opt, MLFQ and Weft on real vLLM, with four workloads.

    Every engine gets the arguments after `--` unchanged. Exit status: 2 without a GPU or a tested
    vLLM, 3 if time ran out before all cells were measured."""

    device: Annotated[
        str, choice("weft_bench.gpu.host:DEVICES"), Option(help="cuda, or cpu to test the command")
    ] = "cuda"
    shape: Annotated[
        str, choice("weft_bench.gpu.shapes:SHAPES"), Option(help="8b, 1b, or tiny for a CPU")
    ] = "8b"
    systems: Annotated[
        tuple[str, ...],
        Parsed(_systems, default="all"),
        Option(help="vllm-opt, ours, mlfq, vllm; 'all', or 'none' for --fit alone"),
    ] = PLAYED
    workloads: Annotated[
        tuple[str, ...],
        choice("weft_bench.cli.gpu:WORKLOADS", several=True, default="all"),
        Option(help="comma-separated, or 'all'"),
    ] = WORKLOADS
    loads: Annotated[
        tuple[float, ...],
        Parsed(shares, default="0.5,0.8,1"),
        Option(help="shares of vllm-opt's capacity"),
    ] = LOADS
    capacity: Annotated[
        Mapping[str, float],
        Parsed(rates, default=""),
        Option(help="programs/s by workload, such as sharegpt=1.5; default: measured"),
    ] = field(default_factory=dict)
    calibration_s: Annotated[
        float, Option("--calibration", min=1, help="longest measurement of a capacity, seconds")
    ] = 60.0
    window_s: Annotated[
        float, Option("--window", min=1, help="seconds in which programs arrive")
    ] = 60.0
    drain_s: Annotated[
        float, Option("--drain", min=0, help="seconds after the window until programs are cut off")
    ] = 120.0
    minutes: Annotated[
        float, Option(min=0.1, help="do not start cells that would end later, minutes")
    ] = 600.0
    start_s: Annotated[
        float, Option("--start-wait", min=1, help="startup limit of an engine, seconds")
    ] = 600.0
    seed: Annotated[int, Option(min=0, help="seed of programs and arrivals")] = 0
    gap_scale: Annotated[float, Option(min=0.0, help="factor on tool times")] = 1.0
    slots: Annotated[int, Option(min=1, help="calls that an engine runs at once")] = 256
    max_model_len: Annotated[int, Option(min=64, help="longest context, tokens")] = 32_768
    step_tokens: Annotated[int, Option(min=1, help="tokens of a batch")] = 8192
    kv_blocks: Annotated[int, Option(min=0, help="KV blocks; 0: as many as the memory holds")] = 0
    memory_share: Annotated[
        float, Option(min=0.05, max=0.98, help="share of the GPU's memory for the engine")
    ] = 0.9
    swap_gib: Annotated[
        float, Option(min=0.0, help="host memory for KV of preempted calls, GiB; 0: no swap")
    ] = 16.0
    policy: Annotated[
        str,
        choice("weft_engine.wire:ORDER_NAMES", empty=True),
        Option(help="order of `ours`; default: resident"),
    ] = ""
    first_quantum_s: Annotated[
        float, Option("--first-quantum", min=0.001, help="first queue's quantum, seconds")
    ] = 0.5
    rounds: Annotated[int, Option(min=1, max=100, help="rounds of --fit, for medians")] = 5
    fit_file: Annotated[
        str, Option("--fit", help="also measure steps and swaps, and write an engine file here")
    ] = ""
    logs: Annotated[str, Option(help="folder to keep the engines' logs in")] = ""
    json_file: Annotated[
        str,
        Option(
            "--json",
            callback=writable,
            help="write the figures to this file; an existing file is extended",
        ),
    ] = ""
    # Arguments of every engine, as given after `--`.
    more: tuple[str, ...] = ()

    @property
    def longest_s(self) -> float:
        """The longest duration of a cell in seconds, without clearing the cache."""
        return self.window_s + self.drain_s
