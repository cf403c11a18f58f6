"""The command `weft bench replica`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from weft_bench.cli.options import Option, PresetBlocks, PresetSlots, command

replica = typer.Typer()


@command(replica, "replica", "weft_bench.simulated.command")
@dataclass(frozen=True, slots=True)
class SimulatedOptions:
    """Run a simulated replica with an engine's API and timing, without vLLM and without a model."""

    model: Annotated[str, Option(help="served model name")] = "simulated"
    host: Annotated[str, Option(help="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Option(min=1, max=65535, help="port to listen on")] = 8001
    policy: Annotated[str, Option(help="order of waiting calls: fcfs, plas, ...")] = "warm_plas"
    preset: Annotated[
        str, Option(help="model and GPU, such as 8b-a100, or a file of `weft bench fit`")
    ] = "8b-a100"
    slots: PresetSlots = 0
    kv_blocks: PresetBlocks = 0
    speed_up: Annotated[float, Option(help="divide all times by this")] = 1.0
    answer_tokens: Annotated[
        int, Option(min=1, help="length of an answer if the call sets no limit")
    ] = 50
    scheduler: Annotated[
        str, Option(help="plain, or vllm for vLLM's own (takes seconds to start)")
    ] = "plain"
