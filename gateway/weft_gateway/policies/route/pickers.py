"""Pickers: from scores to one replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class MaxScore:
    """The highest total; ties are broken at random, so that no replica is everybody's first."""

    def pick(self, totals: Mapping[str, float], ordinal: int, rng: Random) -> str:
        """One of the best."""
        best = max(totals.values())
        names = [name for name, total in totals.items() if total >= best]
        return names[0] if len(names) == 1 else names[rng.randrange(len(names))]


@dataclass(frozen=True, slots=True)
class InTurn:
    """Round robin over the eligible replicas by the call's ordinal."""

    def pick(self, totals: Mapping[str, float], ordinal: int, rng: Random) -> str:
        """The replica whose turn it is."""
        names = sorted(totals)
        return names[ordinal % len(names)]
