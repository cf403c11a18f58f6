"""Latency against load: the load that a system bears at a given latency. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import nan

Curve = Sequence[tuple[float, float]]


def load_at(latency: float, curve: Curve) -> float:
    """The greatest load at which the latency is not above `latency`, with straight lines between
    measured points. curve: (load, latency) by rising load, two points at least.

    nan where even the lightest load is slower; the heaviest measured load where all are faster:
    what lies beyond was not measured.
    """
    best = nan
    for (low, fast), (high, slow) in pairwise(curve):
        if fast <= latency:
            best = low
        if fast <= latency < slow:
            best = low + (high - low) * (latency - fast) / (slow - fast)
    if curve and curve[-1][1] <= latency:
        best = curve[-1][0]
    return best


def throughput_ratio(ours: Curve, baseline: Curve, latency: float) -> tuple[float, bool]:
    """How much more load ours bears than the baseline at one latency, and whether that is only a
    lower bound, since ours was still faster at the heaviest load measured. nan where one of them
    is slower than that at every load."""
    mine, theirs = load_at(latency, ours), load_at(latency, baseline)
    return mine / theirs, bool(ours) and ours[-1][1] <= latency
