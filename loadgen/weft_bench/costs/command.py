"""`weft bench fit`: fits the cost model of a running engine; its file can be a preset."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.progress import Progress
from weft_engine.emulated.presets import EngineShape

from weft_bench.cli.studies import FitOptions
from weft_bench.costs.fit import Measured, error, fit_costs, seconds_of
from weft_bench.costs.step_probe import ProbeError, measurements, probe
from weft_bench.costs.swap_probe import probe_swap, scenes
from weft_bench.report.figures import Figure, machine, refuse, write_json
from weft_bench.report.rows import print_table


def run(options: FitOptions) -> int:
    """Measure, fit and report; or compare, as `agreement.command`.

    Returns the exit status: 2 if the engine cannot be measured.
    """
    if options.agreement:
        from weft_bench.agreement.command import run as agreement

        return agreement(options)
    try:
        shape, measured = measure(options)
        if options.swap_engine:
            shape = with_swap(shape, measure_swap(options.swap_engine, options.rounds))
    except (ProbeError, ValueError) as wrong:
        return refuse("fit", wrong)
    show(shape, measured)
    print(machine())
    if options.json_file:
        write(options, shape, measured)
    return 0


def measure(options: FitOptions) -> tuple[EngineShape, list[Measured]]:
    """Return the engine with its fitted cost model, and the measurements.

    Raises ProbeError, and ValueError if the measurements do not determine the model.
    """
    # Calls that do not fit into the cache together would be preempted.
    room = min(options.step_tokens, options.kv_blocks * options.block_tokens)
    with Progress(transient=True) as progress:
        total = measurements(options.slots, options.context, room)
        bar = progress.add_task("fit", total=total)
        url = options.engine.rstrip("/").removesuffix("/v1")
        asked = probe(
            url, options.slots, options.context, options.rounds,
            lambda: progress.advance(bar), step_tokens=room,
        )  # fmt: skip
        found = asyncio.run(asked)
    shape = EngineShape(
        cost=fit_costs(found.steps),
        slots=options.slots,
        step_tokens=options.step_tokens,
        kv_blocks=options.kv_blocks,
        block_tokens=options.block_tokens,
        block_bytes=options.block_bytes,
        context=options.context,
        call_s=found.call_s,
    )
    return shape, found.steps


def measure_swap(engine: str, rounds: int) -> float:
    """Return the seconds to move a KV block between device and host.

    engine: URL of an engine with one slot and swap. Raises ProbeError.
    """
    with Progress(transient=True) as progress:
        bar = progress.add_task("swap", total=scenes(rounds))
        url = engine.rstrip("/").removesuffix("/v1")
        return asyncio.run(probe_swap(url, rounds, lambda: progress.advance(bar)))


def with_swap(shape: EngineShape, block_s: float) -> EngineShape:
    """Return the engine with the cost of a swapped block, seconds."""
    return replace(shape, cost=replace(shape.cost, swapped_block_s=block_s))


def write(options: FitOptions, shape: EngineShape, measured: Sequence[Measured]) -> None:
    """Write the figures, and the engine in the format of a preset."""
    figures = [Figure(name, value, "s") for name, value in asdict(shape.cost).items()]
    figures.append(Figure("mean_relative_error", error(shape.cost, measured), "1"))
    document: dict[str, Any] = {**asdict(options), "measured": [asdict(m) for m in measured]}
    write_json(
        Path(options.json_file), "weft bench fit", document, figures, {"engine": asdict(shape)}
    )


def show(shape: EngineShape, measured: Sequence[Measured]) -> None:
    """Print the measurements with the model's durations, and the model."""
    columns = ("steps", "prompt tokens", "sequences", "context", "measured, ms", "fitted, ms")
    rows = []
    cost = shape.cost
    for m in measured:
        counts = (m.steps, m.prefill, m.decode / m.steps, m.context / m.steps)
        times = (m.seconds, seconds_of(cost, m))
        rows.append([*(f"{n:.0f}" for n in counts), *(f"{1e3 * s:.2f}" for s in times)])
    print_table("steps of a real engine, measured and fitted", columns, rows, 0)
    for name, value in asdict(cost).items():
        print(f"{name} {value * 1e6:.4g} us")
    print(f"call_s {shape.call_s * 1e6:.4g} us")
    if not cost.swapped_block_s:
        print("swapped_block_s: not measured, or below this machine's noise")
    print(f"mean relative error {error(cost, measured):.1%}")
