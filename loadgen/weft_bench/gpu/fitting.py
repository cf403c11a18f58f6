"""Fits the simulator's cost model to an engine of this bench, swaps included."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

from weft_bench.cli.gpu import GpuOptions
from weft_bench.cli.simulator import FitOptions
from weft_bench.drive.client import Client
from weft_bench.gpu.engine import cache_of, metrics, started
from weft_bench.gpu.shapes import SHAPES
from weft_bench.gpu.systems import OURS, SYSTEMS

# Blocks beyond those of one longest context. vLLM reserves one.
_SPARE_BLOCKS: Final = 2


def fit_engine(
    options: GpuOptions,
    model: Path,
    logs: Path,
    wait_s: float,
) -> None:
    """Measure steps on one engine, and swaps on another with one slot and KV for one context.

    Writes the file that `weft bench sim --preset` reads. Raises NotReady and ProbeError, and
    ValueError if the measurements allow no fit.
    """
    from weft_bench.costs.command import measure, measure_swap, show, with_swap
    from weft_bench.costs.command import write as write_fit

    print("starting an engine to measure its steps ...", flush=True)
    with started(SYSTEMS[OURS], options, model, logs, wait_s) as at:
        blocks, block_tokens = asyncio.run(_cache(at.engine))
        asked = FitOptions(
            engine=at.engine,
            slots=options.slots,
            step_tokens=options.step_tokens,
            kv_blocks=blocks,
            block_tokens=block_tokens,
            block_bytes=SHAPES[options.shape].token_bytes * block_tokens,
            context=options.max_model_len,
            rounds=options.rounds,
            json_file=options.fit_file,
        )
        fitted, measured = measure(asked)
    if options.swap_gib:
        print("starting an engine to measure its swaps ...", flush=True)
        few = -(-options.max_model_len // block_tokens) + _SPARE_BLOCKS
        alone = replace(options, slots=1, kv_blocks=few)
        system = replace(SYSTEMS[OURS], tags=False)
        swaps = logs / "swaps"
        swaps.mkdir(exist_ok=True)
        with started(system, alone, model, swaps, wait_s, experiments=True) as at:
            fitted = with_swap(fitted, measure_swap(at.engine, options.rounds))
    show(fitted, measured)
    write_fit(asked, fitted, measured)


async def _cache(engine: str) -> tuple[int, int]:
    async with Client(engine) as client:
        return cache_of(await metrics(client))
