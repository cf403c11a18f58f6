"""Forecasts of paths: how many calls follow. Pure.

Everything is learned by kind, a text; the kind "" stands for all programs, and is used for kinds
with few samples.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

ALL: Final = ""
# A kind with fewer samples uses those of all programs.
MIN_SAMPLES: Final = 8
_MAX_KINDS: Final = 1024
_MAX_CALLS: Final = 512


class PathLengths:
    """The number of calls on a unit's path, by kind: the product-limit estimator (Kaplan and Meier,
    1958). A unit that still runs counts at the calls that it has passed, which keeps long ones in
    the estimate.
    """

    def __init__(self) -> None:
        # Per kind and position: units that went on after this call, and units that ended with it.
        self._counts: OrderedDict[str, list[list[int]]] = OrderedDict()

    def went_on(self, kind: str, position: int) -> None:
        """Count a unit with another call after the one at `position`, from 1."""
        self._count(kind, position, 0)

    def ended(self, kind: str, position: int) -> None:
        """Count a unit whose last call is at `position`."""
        self._count(kind, position, 1)

    def remaining(self, kind: str, position: int) -> int:
        """Return the median number of calls after `position`. 0 if no unit got so far."""
        survival, calls = 1.0, 0
        for at in range(position, _MAX_CALLS):
            went_on, ended = self._at(kind, at)
            if not went_on:
                return calls
            survival *= went_on / (went_on + ended)
            if survival <= 0.5:
                return calls
            calls += 1
        return calls

    def _at(self, kind: str, position: int) -> list[int]:
        for name in (kind, ALL):
            counts = self._counts.get(name, [])
            if position < len(counts) and (sum(counts[position]) >= MIN_SAMPLES or name == ALL):
                return counts[position]
        return [0, 0]

    def _count(self, kind: str, position: int, column: int) -> None:
        if position >= _MAX_CALLS:
            return
        for name in {kind, ALL}:
            counts = self._counts.setdefault(name, [])
            counts.extend([0, 0] for _ in range(position + 1 - len(counts)))
            counts[position][column] += 1
            self._counts.move_to_end(name)
        self._counts.move_to_end(ALL)
        if len(self._counts) > _MAX_KINDS:
            self._counts.popitem(last=False)
