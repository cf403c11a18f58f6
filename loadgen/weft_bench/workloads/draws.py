"""Distributions with published moments. Pure: each draw takes the random stream as an argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log
from random import Random
from statistics import NormalDist
from typing import Final

_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class LongTail:
    """A log-normal distribution between bounds, with exactly this mean.

    spread: standard deviation of the logarithm before the bounds apply; 0.5 is mild, 1.5 has a tail
    of more than ten times the mean. Raises ValueError if the mean is not well inside the bounds.
    """

    mean: float
    spread: float
    least: float
    most: float

    def __post_init__(self) -> None:
        # Invalid values raise an error here, and not at the first draw.
        _centre(self.mean, self.spread, self.least, self.most)

    def draw(self, rng: Random) -> float:
        """Return one value. Takes one number from the stream."""
        centre = _centre(self.mean, self.spread, self.least, self.most)
        low = _NORMAL.cdf((log(self.least) - centre) / self.spread)
        high = _NORMAL.cdf((log(self.most) - centre) / self.spread)
        share = low + (high - low) * (rng.random() or 0.5)
        value = exp(centre + self.spread * _NORMAL.inv_cdf(share))
        return min(self.most, max(self.least, value))

    def whole(self, rng: Random) -> int:
        """Return one value as a whole number."""
        return round(self.draw(rng))


@lru_cache(maxsize=256)
def _centre(mean: float, spread: float, least: float, most: float) -> float:
    """Return the logarithm's mean before the bounds apply.

    Uses bisection: the mean of the bounded distribution grows with it.
    """
    if not 0 < least < most or spread <= 0:
        raise ValueError(f"invalid bounds of a long tail: {least} to {most}, spread {spread}")
    low, high = log(least) - 3 * spread, log(most) + 3 * spread
    if not _cut_mean(low, spread, least, most) < mean < _cut_mean(high, spread, least, most):
        raise ValueError(f"no long tail between {least} and {most} has the mean {mean}")
    for _ in range(80):
        middle = (low + high) / 2
        if _cut_mean(middle, spread, least, most) < mean:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _cut_mean(centre: float, spread: float, least: float, most: float) -> float:
    low, high = (log(least) - centre) / spread, (log(most) - centre) / spread
    kept = _NORMAL.cdf(high) - _NORMAL.cdf(low)
    moved = _NORMAL.cdf(high - spread) - _NORMAL.cdf(low - spread)
    return exp(centre + spread * spread / 2) * moved / kept


@dataclass(frozen=True, slots=True)
class TwoPhase:
    """A mixture of two exponentials, many short and few long values, with this mean and variance.

    quick: mean of the short values, below `mean`. Its higher moments are smaller than those of a
    log-normal with the same variance, so that samples have the variance too. Raises ValueError for
    a variance below an exponential's.
    """

    mean: float
    variance: float
    quick: float

    def __post_init__(self) -> None:
        if not 0 < self.quick < self.mean or self.variance < self.mean**2:
            raise ValueError(f"invalid mixture of two exponentials: {self}")

    @property
    def slow(self) -> float:
        """The mean of the long values, from the second moment."""
        second = (self.variance + self.mean**2) / 2
        return (second - self.quick**2) / (self.mean - self.quick) - self.quick

    def draw(self, rng: Random) -> float:
        """Return one value. Takes two numbers from the stream."""
        share = (self.mean - self.quick) / (self.slow - self.quick)
        return rng.expovariate(1 / (self.slow if rng.random() < share else self.quick))


@dataclass(frozen=True, slots=True)
class LogitShare:
    """A share of a whole with this median. spread: standard deviation of its logit."""

    median: float
    spread: float

    def draw(self, rng: Random) -> float:
        """Return one value between 0 and 1. Takes one number from the stream."""
        logit = log(self.median / (1 - self.median))
        logit += self.spread * _NORMAL.inv_cdf(rng.random() or 0.5)
        return 1 / (1 + exp(-logit))


def popularity(count: int) -> list[float]:
    """Return the shares of `count` items. The n-th is 1/n as frequent as the first (Zipf)."""
    weights = [1 / rank for rank in range(1, count + 1)]
    return [weight / sum(weights) for weight in weights]


def pick(rng: Random, shares: Sequence[float]) -> int:
    """Select an index by its share. Takes one number from the stream."""
    return rng.choices(range(len(shares)), shares)[0]
