"""p-values of paired comparisons, and their correction for the number of comparisons. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan, sqrt
from statistics import stdev
from typing import Final

LEVEL: Final = 0.05


def p_value(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of a mean difference of 0 by Student's t.

    nan for fewer than two differences. If all differences are equal, 1 for zeros and 0 otherwise.
    """
    # Imported here because the import takes a second, and clients that run one cell each do not
    # need it.
    from scipy.stats import t

    if len(differences) < 2:
        return nan
    middle, spread = sum(differences) / len(differences), stdev(differences)
    if spread == 0:
        return 0.0 if middle else 1.0
    return float(2 * t.sf(abs(middle) * sqrt(len(differences)) / spread, len(differences) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Holm's step-down correction (Holm 1979), in the same order.

    The family-wise error rate of rejecting all that are at most `LEVEL` is at most `LEVEL`.
    """
    ascending = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, least = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(ascending):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = least
    return adjusted
