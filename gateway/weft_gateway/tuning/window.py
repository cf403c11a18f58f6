"""Statistics of a window of ended programs, and the one-sided test of two windows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, inf, lgamma, log, sqrt
from typing import Final

_TINY: Final = 1e-300
_PRECISION: Final = 1e-14
_MOST_TERMS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Summary:
    """Of a window's values. variance: of a sample, 0 for one value."""

    count: int
    mean: float
    variance: float
    p95: float


def summary(values: Sequence[float]) -> Summary:
    """Return the summary of these values, zeros without values."""
    count = len(values)
    if not count:
        return Summary(0, 0.0, 0.0, 0.0)
    mean = sum(values) / count
    squares = sum((value - mean) ** 2 for value in values)
    return Summary(count, mean, squares / (count - 1) if count > 1 else 0.0, p95(values))


def p95(values: Sequence[float]) -> float:
    """Return the least value that 95% of the values do not exceed, 0 without values."""
    ordered = sorted(values)
    return ordered[ceil(0.95 * len(ordered)) - 1] if ordered else 0.0


def p_greater(new: Summary, old: Summary) -> float:
    """Return the p value of Welch's t-test of equal means against a greater new mean. 1 if a window
    has fewer than two values. Windows without any variance differ with certainty or not at all.
    """
    if min(new.count, old.count) < 2:
        return 1.0
    a, b = new.variance / new.count, old.variance / old.count
    if a + b <= 0:
        return 0.0 if new.mean > old.mean else 1.0
    t = (new.mean - old.mean) / sqrt(a + b)
    # Scaled, so that squares of tiny variances do not become 0.
    a, b = a / (a + b), b / (a + b)
    freedom = 1 / (a * a / (new.count - 1) + b * b / (old.count - 1))
    return student_upper(t, freedom)


def student_upper(t: float, freedom: float) -> float:
    """Return the probability that Student's t exceeds `t`. freedom: degrees, above 0."""
    if t == inf:
        return 0.0
    half = 0.5 * beta_share(freedom / 2, 0.5, freedom / (freedom + t * t))
    return half if t > 0 else 1 - half


def beta_share(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        # The fraction converges quickly on the other side.
        return 1 - beta_share(b, a, 1 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x)) / a
    d = 1 / _away(1 - (a + b) * x / (a + 1))
    c, product = 1.0, d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            product *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return front * product


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
