"""Latency against load: the greatest load at a given latency. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan, log, nan
from typing import Final, Literal

from weft_bench.studies.cells import Estimate, Measured, geometric

# Bound of a ratio: measured, a lower bound, an upper bound, or unknown.
Bound = Literal["", "≥", "≤", "?"]
Curve = Sequence[tuple[float, float]]
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
    """Return the greatest load whose latency is at most `latency`.

    Interpolates linearly between measured points. curve: (load, latency) by ascending load, at
    least two points. Returns nan if the lightest load is slower, and the heaviest measured load if
    all are faster, because higher loads were not measured.
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
    """Return `load_at` with its bound.

    The result is a lower bound if the heaviest load is fast enough, and the lightest load as an
    upper bound if that load is too slow.
    """
    load = load_at(latency, curve)
    if isnan(load):
        return (curve[0][0], "≤") if curve else (nan, "?")
    return load, "≥" if curve[-1][1] <= latency else ""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Ratio of two systems' loads at one latency, over seeds.

    bound: set if one of the systems was too fast or too slow at every measured load.
    """

    ratio: Estimate
    bound: Bound

    def __str__(self) -> str:
        """Return "2.10 ± 0.30", "≥ 4.00 ± 0.10", or "not measured"."""
        if self.bound == "?":
            return "not measured"
        return f"{self.bound} {self.ratio}".strip()


def throughput_ratio(
    ours: Measured, baseline: Measured, latency: Mapping[int, float], figure: str
) -> Throughput:
    """Return the ratio of our load to the baseline's.

    latency: the latency of the comparison, by seed. figure: its curve over the rate is used. One
    bounded seed makes the result a bound; bounds on both sides make it unknown.
    """
    mine, theirs = curves(ours, figure), curves(baseline, figure)
    logs, bounds = [], set()
    for seed in mine:
        ours_bears, ours_bound = bounded_load(latency[seed], mine[seed])
        they_bear, their_bound = bounded_load(latency[seed], theirs[seed])
        logs.append(log(ours_bears / they_bear))
        bounds.add(_OF.get((ours_bound, their_bound), "?"))
    bounds.discard("")
    bound: Bound = "?" if len(bounds) > 1 or not logs else next(iter(bounds), "")
    return Throughput(geometric(logs), bound)


def curves(found: Measured, figure: str) -> dict[int, list[tuple[float, float]]]:
    """Return a figure over the rate, by seed."""
    lines: dict[int, list[tuple[float, float]]] = {}
    for level in sorted(float(level) for level in found.levels("rate")):
        for seed, value in found.where(rate=level).series(figure).items():
            lines.setdefault(seed, []).append((level, value))
    return lines


def doubled(baseline: Measured, figure: str) -> dict[int, float]:
    """Return twice the figure at the lightest load, by seed: the latency of the comparison."""
    return {seed: 2 * line[0][1] for seed, line in curves(baseline, figure).items()}
