"""Latency against load: the load that a system bears at a given latency. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan, log, nan, sqrt
from typing import Final, Literal

from weft_bench.studies.cells import Estimate, Measured, geometric
from weft_bench.studies.experiment import Score, more

Curve = Sequence[tuple[float, float]]
# Of a ratio: as measured, at least or at most so much, or nothing is known.
Bound = Literal["", "≥", "≤", "?"]
_OF: Final[Mapping[tuple[str, str], Bound]] = {
    ("", ""): "",
    ("≥", ""): "≥",
    ("", "≤"): "≥",
    ("≥", "≤"): "≥",
    ("≤", ""): "≤",
    ("", "≥"): "≤",
    ("≤", "≥"): "≤",
}


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


def bounded_load(latency: float, curve: Curve) -> tuple[float, Bound]:
    """`load_at`, and what is known of it: at least so much where the heaviest load measured is fast
    enough, at most the lightest where that is too slow."""
    load = load_at(latency, curve)
    if isnan(load):
        return (curve[0][0], "≤") if curve else (nan, "?")
    return load, "≥" if curve[-1][1] <= latency else ""


@dataclass(frozen=True, slots=True)
class Throughput:
    """How much more load one system bears than another at one latency, over seeds, and whether that
    is a bound, since one of them was too fast or too slow at every load measured."""

    ratio: Estimate
    bound: Bound

    def __str__(self) -> str:
        """As "2.10 ± 0.30", "≥ 4.00 ± 0.10", or "not measured"."""
        if self.bound == "?":
            return "not measured"
        return f"{self.bound} {self.ratio}".strip()

    def score(self, name: str) -> Score:
        """What it tells: a bound tells only of its own side."""
        outcome = more("", self.ratio).outcome
        told = {"": ("won", "lost"), "≥": ("won",), "≤": ("lost",), "?": ()}[self.bound]
        return Score(name, str(self), outcome if outcome in told else "open")


def throughput_ratio(
    ours: Measured, baseline: Measured, latency: Mapping[int, float], figure: str
) -> Throughput:
    """How much more load ours bears than the baseline. latency: by seed, what is compared at.
    figure: whose curve over the setting `rate`. A seed that only bounds the ratio makes a bound of
    all; seeds that bound it from both sides, nothing."""
    mine, theirs = curves(ours, figure), curves(baseline, figure)
    logs: list[float] = []
    bounds: set[Bound] = set()
    for seed in mine:
        ours_bears, ours_bound = bounded_load(latency[seed], mine[seed])
        they_bear, their_bound = bounded_load(latency[seed], theirs[seed])
        logs.append(log(ours_bears / they_bear))
        bounds.add(_OF.get((ours_bound, their_bound), "?"))
    bounds.discard("")
    bound: Bound = "?" if len(bounds) > 1 or not logs else next(iter(bounds), "")
    return Throughput(geometric(logs), bound)


def curves(found: Measured, figure: str) -> dict[int, list[tuple[float, float]]]:
    """A figure over the setting `rate`, by seed."""
    lines: dict[int, list[tuple[float, float]]] = {}
    for rate in sorted(float(level) for level in found.levels("rate")):
        for seed, value in found.where(rate=rate).series(figure).items():
            lines.setdefault(seed, []).append((rate, value))
    return lines


def doubled(baseline: Measured, figure: str) -> dict[int, float]:
    """By seed, twice what the figure is at the lightest load: the latency at which systems are
    compared."""
    return {seed: 2 * line[0][1] for seed, line in curves(baseline, figure).items()}


def risen(baseline: Measured, figure: str) -> dict[int, float]:
    """By seed, `doubled` where the figure rises as far under the loads measured; elsewhere the
    geometric mean of its least and its greatest, so that what is compared was measured."""
    levels = {}
    for seed, line in curves(baseline, figure).items():
        values = [value for _, value in line]
        twice = 2 * values[0]
        levels[seed] = twice if twice <= max(values) else sqrt(min(values) * max(values))
    return levels
