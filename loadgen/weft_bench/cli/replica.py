"""The command `weft bench replica`."""

from __future__ import annotations

from typing import Annotated

import typer

replica = typer.Typer()


@replica.command("replica")
def bench_replica(
    model: Annotated[str, typer.Option(help="served model name")] = "simulated",
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port to listen on")] = 8001,
    policy: Annotated[
        str, typer.Option(help="order of waiting calls: fcfs, plas, ...")
    ] = "warm_plas",
    preset: Annotated[
        str, typer.Option(help="model and GPU, such as 8b-a100, or a file of `weft bench fit`")
    ] = "8b-a100",
    slots: Annotated[int, typer.Option(min=0, help="concurrent calls; 0: the preset's")] = 0,
    kv_blocks: Annotated[int, typer.Option(min=0, help="KV blocks; 0: the preset's")] = 0,
    speed_up: Annotated[float, typer.Option(help="divide all times by this")] = 1.0,
    answer_tokens: Annotated[
        int, typer.Option(min=1, help="length of an answer if the call sets no limit")
    ] = 50,
    scheduler: Annotated[
        str, typer.Option(help="plain, or vllm for vLLM's own (takes seconds to start)")
    ] = "plain",
) -> None:
    """Run a simulated replica with an engine's API and timing, without vLLM and without a model."""
    from weft_bench.simulated.command import SimulatedOptions, run

    options = SimulatedOptions(
        model=model,
        host=host,
        port=port,
        policy=policy,
        preset=preset,
        slots=slots,
        kv_blocks=kv_blocks,
        speed_up=speed_up,
        answer_tokens=answer_tokens,
        scheduler=scheduler,
    )
    raise typer.Exit(run(options))
