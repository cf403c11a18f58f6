"""Pickers: each chooses one replica from the totals of scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

# Takes at least one total, and the number of calls placed before.
Picker = Callable[[Mapping[str, float], int, Random], str]


def max_score(totals: Mapping[str, float], ordinal: int, rng: Random) -> str:
    """Return the replica with the highest total. Ties are broken at random."""
    best = max(totals.values())
    names = [name for name, total in totals.items() if total >= best]
    return names[0] if len(names) == 1 else names[rng.randrange(len(names))]


def in_turn(totals: Mapping[str, float], ordinal: int, rng: Random) -> str:
    """Return the next replica in turn."""
    names = sorted(totals)
    return names[ordinal % len(names)]
