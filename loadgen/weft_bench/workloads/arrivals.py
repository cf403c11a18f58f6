"""Arrival times of programs: steady, bursty, stepped, or recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, cycle
from random import Random
from typing import Final

from weft_bench.workloads.draws import TwoPhase
from weft_bench.workloads.streams import poisson_arrivals

# The coefficient of variation of the times between requests in Azure's code trace of November 2023.
# Half of these times are shorter than a sixth of their mean, and one in 200 is longer than 25 times
# the mean.
BURSTY_CV: Final = 13.0
_QUICK: Final = 0.3
# Repeated (seconds, factor on the rate). The factors' mean is 1.
STEPS: Final = ((60.0, 0.5), (60.0, 1.0), (60.0, 1.5), (60.0, 1.0))


def bursty_arrivals(
    rng: Random, rate: float, count: int, variation: float = BURSTY_CV
) -> list[float]:
    """Return arrival times of a renewal process with bursts and long pauses, in seconds from the
    start.

    rate: per second. variation: coefficient of variation of the times between arrivals, above 1.
    """
    between = TwoPhase(1 / rate, (variation / rate) ** 2, _QUICK / rate)
    return list(accumulate(between.draw(rng) for _ in range(count)))


def stepped_arrivals(
    rng: Random, rate: float, count: int, steps: Sequence[tuple[float, float]] = STEPS
) -> list[float]:
    """Return arrival times of a Poisson process whose rate changes in steps.

    rate: per second. steps: repeated (seconds, factor on the rate). Raises ValueError if no step
    has arrivals.
    """
    if not any(seconds * factor > 0 for seconds, factor in steps):
        raise ValueError(f"steps without arrivals: {steps}")
    times: list[float] = []
    turn = cycle(steps)
    begun, (seconds, factor) = 0.0, next(turn)
    now = 0.0
    for _ in range(count):
        # The next interval of a process of rate 1. Each step stretches its part of it.
        left = rng.expovariate(1.0)
        while left > rate * factor * (begun + seconds - now):
            left -= rate * factor * (begun + seconds - now)
            begun += seconds
            now, (seconds, factor) = begun, next(turn)
        now += left / (rate * factor)
        times.append(now)
    return times


KINDS: Final[dict[str, Callable[[Random, float, int], list[float]]]] = {
    "poisson": poisson_arrivals,
    "bursty": bursty_arrivals,
    "stepped": stepped_arrivals,
}
RECORDED: Final = "recorded"
ALL: Final = (*KINDS, RECORDED)


def arrivals(kind: str, rng: Random, rate: float, recorded: Sequence[float | None]) -> list[float]:
    """Return arrival times in seconds from the start, one for each program.

    kind: one of KINDS, or RECORDED. rate: programs per second; recorded times are scaled to it, 0
    leaves them unchanged. recorded: each program's arrival. Raises ValueError for an unknown kind,
    and for RECORDED without recorded times.
    """
    if kind in KINDS:
        return KINDS[kind](rng, rate, len(recorded))
    if kind != RECORDED:
        raise ValueError(f"unknown arrivals {kind}; known are {', '.join(ALL)}")
    times = [time for time in recorded if time is not None]
    if len(times) < len(recorded):
        raise ValueError("the trace has no arrival times")
    first, last = min(times, default=0.0), max(times, default=0.0)
    stretch = len(times) / (rate * (last - first)) if rate and last > first else 1.0
    return [(time - first) * stretch for time in times]
