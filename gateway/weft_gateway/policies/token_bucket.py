"""Token buckets: limits per minute that refill continuously. Pure.

A bucket holds at most one minute's worth. A tenant may spend a minute's limit in one burst and then
continues at the average rate. A correction after the call can take a bucket below zero; the tenant
then waits for the refill. `lua/limits.lua` has the same arithmetic.
"""

from __future__ import annotations

from typing import NamedTuple

MINUTE_S = 60.0


class Bucket(NamedTuple):
    """level: requests or tokens left at `at_s`. at_s: any monotonic clock, seconds."""

    level: float
    at_s: float


def refilled(bucket: Bucket | None, per_minute: int, now_s: float) -> Bucket:
    """Return the bucket at `now_s`. None is an unused bucket, which is full."""
    if bucket is None:
        return Bucket(float(per_minute), now_s)
    gained = max(0.0, now_s - bucket.at_s) * per_minute / MINUTE_S
    return Bucket(min(float(per_minute), bucket.level + gained), now_s)


def wait_s(bucket: Bucket, cost: float, per_minute: int) -> float:
    """Return the seconds until `cost` can be taken; 0 if it can be taken now. A cost above the
    capacity needs a full bucket and leaves it below zero.
    """
    missing = min(cost, float(per_minute)) - bucket.level
    return max(0.0, missing * MINUTE_S / per_minute)
