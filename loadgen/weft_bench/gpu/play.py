"""Plays one cell, and measures the capacity to which loads refer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final
from uuid import uuid4

from weft_bench.cli.gpu import GpuOptions
from weft_bench.drive.client import Client
from weft_bench.drive.player import Gaps, Play, Player
from weft_bench.gpu.cells import count, plateau
from weft_bench.gpu.engine import Counts, EngineError, counts_of, fresh, metrics
from weft_bench.gpu.systems import NAME
from weft_bench.stats import mean
from weft_bench.workloads.cutting import ReadyProgram, fitting
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.streams import poisson_arrivals, stream

_SAMPLE_S: Final = 0.25
# Number of programs whose mean converts a rate of tokens to a rate of programs.
_SAMPLED: Final = 300
# Seed offset for programs that are not measured.
_WARM_SEED: Final = 1_000_003
_WARM: Final = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """One played cell. engine: vLLM's counts meanwhile."""

    programs: Sequence[ReadyProgram]
    play: Play
    engine: Counts
    rate: float
    seconds: float


def programs(workload: str, seed: int, number: int, context: int) -> list[ReadyProgram]:
    """Return the first programs of a workload that fit the context.

    Equal arguments give equal programs.
    """
    # Enough others exist for the programs that are left out.
    made = WORKLOADS[workload].generate(seed, 20 * number + 100)
    return list(islice(fitting(made, context, 1.0), number))


def arrivals(
    workload: str, options: GpuOptions, rate: float
) -> tuple[list[ReadyProgram], list[float]]:
    """Return the programs of a cell and their arrivals in seconds from its start.

    Arrivals are a Poisson process of `count` programs, scaled to the window. Another rate plays
    more or fewer of the same programs.
    """
    number = count(rate, options.window_s)
    found = programs(workload, options.seed, number, options.max_model_len)
    times = poisson_arrivals(stream(options.seed, "arrivals"), 1.0, len(found) + 1)
    return found, [time * options.window_s / times[-1] for time in times[:-1]]


def output_tokens(ready: ReadyProgram) -> int:
    """Return the number of tokens of all answers together."""
    return sum(call.max_tokens for call in ready.calls)


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients of an engine, and of the gateway in front of it."""

    engine: Client
    gateway: Client

    def player(self, tags: bool, gap_scale: float) -> Player:
        """Return a player for one play. tags: send the tags of prompts."""
        gaps = Gaps(gap_scale, float("inf"))
        return Player(self.gateway, NAME, uuid4().hex[:8], gaps, tell_tags=tags)


async def warm_up(at: Clients, workload: str, options: GpuOptions) -> None:
    """Play a few calls of other programs, since an engine's first calls are slow.

    Raises EngineError if one fails.
    """
    found = programs(workload, options.seed + _WARM_SEED, _WARM, options.max_model_len)
    player = at.player(tags=False, gap_scale=0.0)
    nothing_failed(
        await player.play(found, [0.0] * len(found), lambda: None, limit_s=options.longest_s)
    )


def nothing_failed(play: Play) -> None:
    """Raise EngineError with the first error of a play."""
    for result in play.programs:
        if result.errors:
            raise EngineError(f"a call of {result.id} failed: {result.errors[0]}")


async def play_cell(
    at: Clients,
    workload: str,
    rate: float,
    options: GpuOptions,
    tags: bool,
    on_call: Callable[[], None],
) -> Outcome:
    """Play the workload's programs at `rate` programs per second.

    Raises EngineError, and OSError or ValueError if engine or gateway do not report their
    state.
    """
    found, times = arrivals(workload, options, rate)
    await fresh(at.engine)
    before = counts_of(await metrics(at.engine))
    begun = time.monotonic()
    player = at.player(tags, options.gap_scale)
    play = await player.play(found, times, on_call, limit_s=options.longest_s)
    seconds = time.monotonic() - begun
    after = counts_of(await metrics(at.engine))
    return Outcome(found, play, after.since(before), rate, seconds)


async def capacity(at: Clients, workload: str, options: GpuOptions) -> float:
    """Return the programs per second of an engine that always has enough work.

    This is its rate of tokens divided by the mean program's tokens, or 0 without tokens. Raises
    EngineError if calls fail.
    """
    found = programs(workload, options.seed + _WARM_SEED, 2 * options.slots, options.max_model_len)
    sampled = programs(workload, options.seed, _SAMPLED, options.max_model_len)
    await fresh(at.engine)
    samples: list[tuple[float, float]] = []
    sampler = asyncio.create_task(_sample(at.engine, samples))
    try:
        player = at.player(tags=False, gap_scale=options.gap_scale)
        nothing_failed(
            await player.play(
                found, [0.0] * len(found), lambda: None, limit_s=options.calibration_s
            )
        )
    finally:
        sampler.cancel()
        with suppress(asyncio.CancelledError):
            await sampler
    return plateau(samples) / mean([output_tokens(program) for program in sampled])


async def _sample(engine: Client, samples: list[tuple[float, float]]) -> None:
    first = counts_of(await metrics(engine)).output_tokens
    begun = time.monotonic()
    while True:
        made = counts_of(await metrics(engine)).output_tokens - first
        samples.append((time.monotonic() - begun, made))
        await asyncio.sleep(_SAMPLE_S)
