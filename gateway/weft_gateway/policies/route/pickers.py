"""Pickers: choose one replica by scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class MaxScore:
    """Chooses the highest total. Ties are broken at random, so that no replica is preferred."""

    def pick(self, totals: Mapping[str, float], ordinal: int, rng: Random) -> str:
        """Return one of the best replicas."""
        best = max(totals.values())
        names = [name for name, total in totals.items() if total >= best]
        return names[0] if len(names) == 1 else names[rng.randrange(len(names))]


@dataclass(frozen=True, slots=True)
class InTurn:
    """Round robin over the eligible replicas by the call's ordinal."""

    def pick(self, totals: Mapping[str, float], ordinal: int, rng: Random) -> str:
        """Return the next replica in turn."""
        names = sorted(totals)
        return names[ordinal % len(names)]
