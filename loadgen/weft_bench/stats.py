"""Statistics that the reports use."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import stdev
from typing import Final

# Student's t for 95%, by degrees of freedom; beyond them by the first terms of its expansion around
# the normal distribution's (Fisher and Cornish 1960), good to two digits after the point there.
_T: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_NORMAL: Final = 1.959964


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """Percentile with linear interpolation between closest ranks; share in [0, 1]; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def half_width(values: Sequence[float]) -> float:
    """Half of the 95% confidence interval of the mean; 0 of a single value."""
    if len(values) < 2:
        return 0.0
    freedom = len(values) - 1
    return _t(freedom) * stdev(values) / sqrt(len(values))


def _t(freedom: int) -> float:
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = _NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
