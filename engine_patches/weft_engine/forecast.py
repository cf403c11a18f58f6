"""Learns how much service programs need, and ranks programs by it: the Gittins index. Pure.

The index of a program is the highest rate at which it may end, in ends per second of service, over
all amounts of service that it could receive next (Gittins, 1979; Aalto, Ayesta and Righter, 2009).
To serve the highest index first minimises the mean completion time on one server. If all programs
need equal service, that is the program with the most attained service: first come, first served. If
their service is heavy-tailed, it is the program with the least (PLAS). A set-up cost, such as
computing a context that is not cached, is service that ends no program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

# Attained service and set-up costs in bins, two per doubling. The last bin has no upper bound.
_FIRST_S: Final = 0.125
_BINS: Final = 30
_BOUNDS: Final = (0.0, *(_FIRST_S * 2 ** (i / 2) for i in range(_BINS)))
_WIDTHS: Final = tuple(end - begin for begin, end in pairwise(_BOUNDS))
# Observations of service after which the hazards are computed again.
_UPDATE_EVERY: Final = 16
# After this many ends, what was observed before counts by a tenth less.
_FORGET_EVERY: Final = 32
_MEMORY: Final = 0.9


class ServiceForecast:
    """The service that the programs of one engine need.

    Programs that have not ended count with the service that they attained so far, so the long ones
    are not missed (censored observations).
    """

    def __init__(self) -> None:
        self._ends = [0.0] * _BINS
        # Seconds of service in each bin.
        self._exposure = [0.0] * _BINS
        self._ended = 0
        self._observed = 0
        self._hazards = self.hazards()
        self._levels: dict[tuple[int, int], int] = {}

    def serve(self, before_s: float, after_s: float) -> None:
        """The attained service of a program has grown, seconds."""
        if not 0 <= before_s < after_s:
            return
        for i in range(_bin(before_s), _bin(after_s) + 1):
            end = _BOUNDS[i + 1] if i + 1 < _BINS else math.inf
            self._exposure[i] += min(after_s, end) - max(before_s, _BOUNDS[i])
        self._observed += 1
        if self._observed % _UPDATE_EVERY == 0:
            self._update()

    def end(self, attained_s: float) -> None:
        """A program has ended with this much service, seconds."""
        self._ends[_bin(attained_s)] += 1
        self._ended += 1
        if self._ended % _FORGET_EVERY == 0:
            self._ends = [_MEMORY * count for count in self._ends]
            self._exposure = [_MEMORY * seconds for seconds in self._exposure]
        self._update()

    def level(self, attained_s: float, setup_s: float = 0.0) -> int:
        """Return the level of a program, the lowest first.

        A level is a factor of two of the index, so that small differences do not make two programs
        take turns. attained_s: its service so far, setup_s: its set-up cost, seconds.
        """
        return self.level_of(self.kind(attained_s, setup_s))

    def kind(self, attained_s: float, setup_s: float = 0.0) -> tuple[int, int]:
        """Return the kind of a program. All programs of one kind have one level."""
        return _bin(attained_s), _bin(setup_s)

    def level_of(self, kind: tuple[int, int]) -> int:
        """Return the level of the programs of a kind, the lowest first."""
        age, setup = kind
        level = self._levels.get(kind)
        if level is None:
            index = gittins(self._hazards[age:], _WIDTHS[age:], _BOUNDS[setup])
            level = self._levels[kind] = -math.floor(math.log2(index))
        return level

    def hazards(self) -> list[float]:
        """Return the rate at which programs end in each bin, per second of service.

        In each bin, one more program has the mean rate. Without observations, service therefore
        says nothing about the end, and the oldest program comes first.
        """
        mean = (1 + sum(self._ends)) / (1 + sum(self._exposure))
        found = []
        for ends, seconds, width in zip(self._ends, self._exposure, _WIDTHS, strict=True):
            one = 1 - math.exp(-mean * width)
            found.append((ends + one) / (seconds + one / mean))
        return found

    def _update(self) -> None:
        self._hazards = self.hazards()
        self._levels.clear()


def gittins(hazards: Sequence[float], widths: Sequence[float], setup_s: float) -> float:
    """Return the index of a program, per second. hazards, widths: of the bins from its attained
    service on, per second and seconds."""
    best, alive, spent = 0.0, 1.0, setup_s
    for hazard, width in zip(hazards, widths, strict=True):
        stays = math.exp(-hazard * width)
        spent += alive * (1 - stays) / hazard
        alive *= stays
        best = max(best, (1 - alive) / spent)
    return best


def _bin(seconds: float) -> int:
    if seconds < _FIRST_S:
        return 0
    return min(_BINS - 1, 1 + int(2 * math.log2(seconds / _FIRST_S)))
