"""The command `weft bench gpu`."""

from __future__ import annotations

from typing import Annotated

import typer
from weft_deploy.options import PassThroughCommand

from weft_bench.cli.options import one_of, some_of, writable

gpu = typer.Typer()


def rates(text: str, known: tuple[str, ...], option: str) -> dict[str, float]:
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
        found[one_of(name, known, option)] = rate
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


@gpu.command("gpu", cls=PassThroughCommand)
def bench_gpu(
    context: typer.Context,
    device: Annotated[str, typer.Option(help="cuda, or cpu to test the command")] = "cuda",
    shape: Annotated[str, typer.Option(help="8b, 1b, or tiny for a CPU")] = "8b",
    systems: Annotated[
        str, typer.Option(help="vllm-opt, ours, mlfq, vllm; 'all', or 'none' for --fit alone")
    ] = "all",
    workloads: Annotated[str, typer.Option(help="comma-separated, or 'all'")] = "all",
    loads: Annotated[str, typer.Option(help="shares of vllm-opt's capacity")] = "0.5,0.8,1",
    capacity: Annotated[
        str, typer.Option(help="programs/s by workload, such as sharegpt=1.5; default: measured")
    ] = "",
    calibration: Annotated[
        float, typer.Option(min=1, help="longest measurement of a capacity, seconds")
    ] = 60.0,
    window: Annotated[float, typer.Option(min=1, help="seconds in which programs arrive")] = 60.0,
    drain: Annotated[
        float, typer.Option(min=0, help="seconds after the window until programs are cut off")
    ] = 120.0,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="do not start cells that would end later, minutes")
    ] = 600.0,
    start_wait: Annotated[
        float, typer.Option(min=1, help="startup limit of an engine, seconds")
    ] = 600.0,
    seed: Annotated[int, typer.Option(min=0, help="seed of programs and arrivals")] = 0,
    gap_scale: Annotated[float, typer.Option(min=0.0, help="factor on tool times")] = 1.0,
    slots: Annotated[int, typer.Option(min=1, help="calls that an engine runs at once")] = 256,
    max_model_len: Annotated[int, typer.Option(min=64, help="longest context, tokens")] = 32_768,
    step_tokens: Annotated[int, typer.Option(min=1, help="tokens of a batch")] = 8192,
    kv_blocks: Annotated[
        int, typer.Option(min=0, help="KV blocks; 0: as many as the memory holds")
    ] = 0,
    memory_share: Annotated[
        float, typer.Option(min=0.05, max=0.98, help="share of the GPU's memory for the engine")
    ] = 0.9,
    swap_gib: Annotated[
        float, typer.Option(min=0.0, help="host memory for KV of preempted calls, GiB; 0: no swap")
    ] = 16.0,
    policy: Annotated[str, typer.Option(help="order of `ours`; default: warm_plas")] = "",
    first_quantum: Annotated[
        float, typer.Option(min=0.001, help="first queue's quantum, seconds")
    ] = 0.5,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="rounds of --fit, for medians")] = 5,
    fit: Annotated[
        str, typer.Option(help="also measure steps and swaps, and write an engine file here")
    ] = "",
    logs: Annotated[str, typer.Option(help="folder to keep the engines' logs in")] = "",
    json_file: Annotated[
        str,
        typer.Option(
            "--json",
            callback=writable,
            help="write the figures to this file; an existing file is extended",
        ),
    ] = "",
) -> None:
    """Measure vLLM, vLLM-opt, MLFQ and Weft on real vLLM, with four workloads.

    Every engine gets the arguments after `--` unchanged. Exit status: 2 without a GPU or a tested
    vLLM, 3 if time ran out before all cells were measured."""
    from weft_engine.wire import ORDER_NAMES

    from weft_bench.gpu.cells import WORKLOADS
    from weft_bench.gpu.command import GpuOptions, run
    from weft_bench.gpu.host import DEVICES
    from weft_bench.gpu.play import Scene
    from weft_bench.gpu.shapes import SHAPES
    from weft_bench.gpu.systems import PLAYED, EngineOptions

    if systems == "none" and not fit:
        raise typer.BadParameter("'none' needs --fit")
    options = GpuOptions(
        device=one_of(device, DEVICES, "--device"),
        shape=one_of(shape, tuple(SHAPES), "--shape"),
        systems=() if systems == "none" else some_of(systems, PLAYED, "--systems"),
        workloads=some_of(workloads, WORKLOADS, "--workloads"),
        loads=shares(loads, "--loads"),
        capacity=rates(capacity, WORKLOADS, "--capacity"),
        calibration_s=calibration,
        minutes=minutes,
        start_s=start_wait,
        engine=EngineOptions(
            context=max_model_len,
            slots=slots,
            step_tokens=step_tokens,
            kv_blocks=kv_blocks,
            memory_share=memory_share,
            swap_gib=swap_gib,
            first_quantum_s=first_quantum,
            policy=one_of(policy, ORDER_NAMES, "--policy") if policy else "",
            more=tuple(context.args),
        ),
        scene=Scene(
            seed=seed,
            context=max_model_len,
            window_s=window,
            drain_s=drain,
            gap_scale=gap_scale,
        ),
        rounds=rounds,
        json_file=json_file,
        fit_file=fit,
        logs=logs,
    )
    raise typer.Exit(run(options))
