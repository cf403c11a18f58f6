"""Statistics that simulations and reports use."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import stdev


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean, or 0 without values."""
    return sum(values) / len(values) if values else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile with linear interpolation between closest ranks.

    share: in [0, 1]. Returns 0 without values.
    """
    if not values:
        return 0.0
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def distribution(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return the mean and the percentiles as `NAME_mean`, `NAME_p50`, `NAME_p95`, `NAME_p99`."""
    return {
        f"{name}_mean": mean(values),
        **{f"{name}_p{percent}": percentile(values, percent / 100) for percent in (50, 95, 99)},
    }


def half_width(values: Sequence[float]) -> float:
    """Return half of the 95% confidence interval of the mean (Student's t), or 0 for one value."""
    # Imported here because the import takes a second, and clients that run one cell each do not
    # need it.
    from scipy.stats import t

    if len(values) < 2:
        return 0.0
    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / sqrt(len(values))
