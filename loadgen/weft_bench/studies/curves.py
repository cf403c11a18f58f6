"""Latency against load: the greatest load at a given latency. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan, log, nan, sqrt
from typing import Final

from weft_bench.studies.cells import Estimate, Measured, geometric
from weft_bench.studies.experiment import Bound, Score, more

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


def bound_of(ours: str, theirs: str) -> Bound:
    """Return the bound of a ratio of two loads with these bounds; "" for none, "?" if unknown."""
    return _OF.get((ours, theirs), "?")


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

    def score(self, name: str) -> Score:
        """Return the score. A bound only supports an outcome on its own side."""
        outcome = more("", self.ratio).outcome
        told = {"": ("won", "lost"), "≥": ("won",), "≤": ("lost",), "?": ()}[self.bound]
        outcome = outcome if outcome in told else "open"
        return Score(name, str(self), outcome, self.ratio, less=False, bound=self.bound)


def throughput_ratio(
    ours: Measured,
    baseline: Measured,
    latency: Mapping[int, float],
    figure: str,
    setting: str = "rate",
) -> Throughput:
    """Return the ratio of our load to the baseline's.

    latency: the latency of the comparison, by seed. figure: its curve over `setting` is used. One
    bounded seed makes the result a bound; bounds on both sides make it unknown.
    """
    return over_seeds(load_ratios(ours, baseline, latency, figure, setting).values())


def load_ratios(
    ours: Measured, baseline: Measured, latency: Mapping[int, float], figure: str, setting: str
) -> dict[int, tuple[float, Bound]]:
    """Return the logarithm of the ratio of the loads with its bound, by seed. Arguments: see
    `throughput_ratio`.
    """
    mine, theirs = curves(ours, figure, setting), curves(baseline, figure, setting)
    found: dict[int, tuple[float, Bound]] = {}
    for seed in mine:
        ours_bears, ours_bound = bounded_load(latency[seed], mine[seed])
        they_bear, their_bound = bounded_load(latency[seed], theirs[seed])
        found[seed] = log(ours_bears / they_bear), bound_of(ours_bound, their_bound)
    return found


def over_seeds(ratios: Iterable[tuple[float, Bound]]) -> Throughput:
    """Return the mean of logarithms of ratios with their bounds."""
    found = list(ratios)
    bound = joint(bound for _, bound in found) if found else "?"
    return Throughput(geometric([ratio for ratio, _ in found]), bound)


def joint(bounds: Iterable[Bound]) -> Bound:
    """Return the bound of a mean of values with these bounds."""
    some = {one for one in bounds if one}
    return "?" if len(some) > 1 else next(iter(some), "")


def curves(
    found: Measured, figure: str, setting: str = "rate"
) -> dict[int, list[tuple[float, float]]]:
    """Return a figure over a setting, by seed."""
    lines: dict[int, list[tuple[float, float]]] = {}
    for level in sorted(float(level) for level in found.levels(setting)):
        for seed, value in found.where(**{setting: level}).series(figure).items():
            lines.setdefault(seed, []).append((level, value))
    return lines


def doubled(baseline: Measured, figure: str) -> dict[int, float]:
    """Return twice the figure at the lightest load, by seed: the latency of the comparison."""
    return {seed: 2 * line[0][1] for seed, line in curves(baseline, figure).items()}


def risen(baseline: Measured, figure: str) -> dict[int, float]:
    """Return `doubled` by seed, if the figure rises that far within the measured loads.

    Otherwise the geometric mean of its least and greatest value, so that the compared range was
    measured.
    """
    levels = {}
    for seed, line in curves(baseline, figure).items():
        values = [value for _, value in line]
        twice = 2 * values[0]
        levels[seed] = twice if twice <= max(values) else sqrt(min(values) * max(values))
    return levels
