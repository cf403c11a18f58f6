"""Random streams, one for each purpose: a change in the use of one does not affect the others."""

from __future__ import annotations

from hashlib import sha256
from random import Random


def stream(seed: int, purpose: str) -> Random:
    """Return the random stream of a purpose."""
    digest = sha256(f"{seed}/{purpose}".encode()).digest()
    return Random(int.from_bytes(digest[:8], "big"))


def poisson_arrivals(rng: Random, rate: float, count: int) -> list[float]:
    """Return arrival times of a Poisson process, in seconds from the start. rate: per second."""
    times: list[float] = []
    now = 0.0
    for _ in range(count):
        now += rng.expovariate(rate)
        times.append(now)
    return times
