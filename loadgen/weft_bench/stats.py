"""Statistics that simulations and reports use."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import stdev


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
    """Half of the 95% confidence interval of the mean (Student's t); 0 of a single value."""
    # Takes a second to import, and clients that are started for every cell need no interval.
    from scipy.stats import t

    if len(values) < 2:
        return 0.0
    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / sqrt(len(values))
