"""Forecasts of programs: how many calls follow, and how long they take. Pure.

They are learned by kind, a text; the kind "" stands for all programs, and is used for kinds with
few samples.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from weft_gateway.policies.recent import ALL, MIN_SAMPLES, P90

_MAX_KINDS: Final = 1024
MAX_CALLS: Final = 512
# A forecast of a path is computed again when the kind has this many times its samples.
_GROWTH: Final = 17 / 16
# The mean service at a position follows about as many calls.
_RECENT: Final = 64
_EXACT: Final = 1e-9


class RemainingCalls(NamedTuple):
    """The calls after a position: the median number and the 90th percentile. seconds, seconds_p90:
    the mean service of as many calls there, 0 if unknown.
    """

    calls: int = 0
    calls_p90: int = 0
    seconds: float = 0.0
    seconds_p90: float = 0.0


_NOTHING: Final = RemainingCalls()


class _Path:
    """The units of a kind. counts: per position, units that went on after this call, and units that
    ended with it. events: their sum. services: per position, the number of calls with a known
    service, and its mean; at position 0, of all. known: forecasts by position, each with the events
    of the kind and of all programs at its time.
    """

    __slots__ = ("counts", "events", "known", "services")

    def __init__(self) -> None:
        self.counts: list[list[int]] = []
        self.events = 0
        self.services: list[tuple[int, float]] = [(0, 0.0)]
        self.known: dict[int, tuple[RemainingCalls, int, int]] = {}


class PathLengths:
    """The number of calls on a unit's path, by kind: the product-limit estimator (Kaplan and Meier,
    1958). A unit that still runs counts at the calls that it has passed, which keeps long ones in
    the estimate.
    """

    def __init__(self) -> None:
        self._paths: OrderedDict[str, _Path] = OrderedDict()

    def went_on(self, kind: str, position: int) -> None:
        """Count a unit with another call after the one at `position`, from 1."""
        self._count(kind, position, 0)

    def ended(self, kind: str, position: int) -> None:
        """Count a unit whose last call is at `position`."""
        self._count(kind, position, 1)

    def ahead(self, kind: str, position: int) -> RemainingCalls:
        """Return the forecast of the calls after `position`. Median 0 if no unit got so far."""
        every = self._paths.get(ALL)
        if every is None:
            return _NOTHING
        path = self._paths.get(kind, every)
        known = path.known.get(position)
        if known is None or path.events > known[1] * _GROWTH or every.events > known[2] * _GROWTH:
            found = _ahead(path, every, position)
            known = path.known[position] = found, path.events, every.events
        return known[0]

    def knows(self, kind: str) -> bool:
        """Whether forecasts of a kind are its own: enough of its units have ended, or no others."""
        path, every = self._paths.get(kind), self._paths.get(ALL)
        if path is None or every is None:
            return every is None
        ended = sum([count[1] for count in path.counts])
        return ended >= MIN_SAMPLES or path.events == every.events

    def served(self, kind: str, position: int, seconds: float) -> None:
        """Learn the service of a unit's call at `position`."""
        if position >= MAX_CALLS:
            return
        for name in (kind, ALL) if kind else (ALL,):
            services = self._path(name).services
            if position >= len(services):
                services.extend([(0, 0.0)] * (position + 1 - len(services)))
            for at in (0, position):
                count, mean = services[at]
                services[at] = count + 1, mean + (seconds - mean) / min(count + 1, _RECENT)

    def _count(self, kind: str, position: int, column: int) -> None:
        if position >= MAX_CALLS:
            return
        for name in (kind, ALL) if kind else (ALL,):
            path = self._path(name)
            counts = path.counts
            if position >= len(counts):
                counts.extend([0, 0] for _ in range(position + 1 - len(counts)))
            counts[position][column] += 1
            path.events += 1

    def _path(self, name: str) -> _Path:
        path = self._paths.get(name)
        if path is None:
            path = self._paths[name] = _Path()
        self._paths.move_to_end(name)
        if len(self._paths) > _MAX_KINDS:
            # Each sample of a kind is also one of all programs.
            self._paths.move_to_end(ALL)
            self._paths.popitem(last=False)
        return path


def _ahead(path: _Path, every: _Path, position: int) -> RemainingCalls:
    calls, most = _residual(path, every, position)
    overall = path if path.services[0][0] >= MIN_SAMPLES else every
    passed = median_s = 0.0
    for number in range(1, most + 1):
        at, (count, mean) = position + number, (0, 0.0)
        for services in (path.services, every.services):
            if at < len(services):
                count, mean = services[at]
                if count >= MIN_SAMPLES:
                    break
        passed += mean if count >= MIN_SAMPLES else overall.services[0][1]
        if number == calls:
            median_s = passed
    return RemainingCalls(calls, most, median_s, passed)


def _residual(path: _Path, every: _Path, position: int) -> tuple[int, int]:
    """Return the median and the 90th percentile of the calls after `position`. every: used at
    positions that few units of the kind have reached.

    For the percentile, one more unit counts at each position, and goes on: with n ended units this
    is the order statistic of conformal prediction (see `recent.upper`). At positions that no unit
    has reached, the probability of an end is the mean of all other positions.
    """
    survival = wide = 1.0
    calls, median = 0, -1
    ends = _ending(path if path.events >= MIN_SAMPLES else every)
    for at in range(position, MAX_CALLS):
        went_on = ended = 0
        for counts in (path.counts, every.counts):
            if at < len(counts):
                went_on, ended = counts[at]
                if went_on + ended >= MIN_SAMPLES:
                    break
        survival *= went_on / (went_on + ended) if went_on else 0.0
        if median < 0 and survival <= 0.5:
            median = calls
        reached = went_on + ended
        wide *= (went_on + 1) / (reached + 1) if reached else 1 - ends
        # The products of fractions are not exact.
        if wide <= 1 - P90 + _EXACT:
            break
        calls += 1
    return (calls if median < 0 else median), calls


def _ending(path: _Path) -> float:
    """Return the probability that a unit ends with a call, over all positions."""
    ended = sum([count[1] for count in path.counts])
    return max(ended, 1) / (path.events + 1)
