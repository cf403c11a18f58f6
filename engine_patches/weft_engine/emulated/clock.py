"""The clock of the emulated device: a step ends at its start plus its cost.

Engine seconds are those of the emulated device. One engine second lasts `dilate` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, MutableSequence
from multiprocessing.sharedctypes import RawArray
from typing import Final

_STEPS, _BUSY_S, _LATE_S, _MOVED_BLOCKS = range(4)


class Counters:
    """Totals of a device. Processes that are forked later share them."""

    def __init__(self) -> None:
        self._values: MutableSequence[float] = RawArray("d", 4)

    @property
    def steps(self) -> int:
        """Steps with work."""
        return int(self._values[_STEPS])

    @property
    def busy_s(self) -> float:
        """Summed costs of the steps, engine seconds."""
        return self._values[_BUSY_S]

    @property
    def late_s(self) -> float:
        """Engine seconds that the device waited for this machine."""
        return self._values[_LATE_S]

    @property
    def moved_blocks(self) -> int:
        """KV blocks moved between device and host."""
        return int(self._values[_MOVED_BLOCKS])

    @property
    def late_share(self) -> float:
        """`late_s` as a share of `busy_s`; 0 before the first step."""
        return self.late_s / self.busy_s if self.busy_s else 0.0

    def add(
        self, steps: int = 0, busy_s: float = 0.0, late_s: float = 0.0, moved_blocks: int = 0
    ) -> None:
        """Add to the totals. Only one process may call this."""
        self._values[_STEPS] += steps
        self._values[_BUSY_S] += busy_s
        self._values[_LATE_S] += late_s
        self._values[_MOVED_BLOCKS] += moved_blocks


# Created at import, which is before the fork of the engine core.
COUNTERS: Final = Counters()


class DeviceClock:
    """Runs steps one after another in real time.

    Without asynchronous scheduling, a step starts at the end of the step before, so that this
    machine's work between two steps is part of the second one. If the work takes longer than the
    step's cost, the device is late.

    With asynchronous scheduling, a step is launched while the step before runs, and starts at that
    step's end. If it is launched after that end, the device is late.

    now, sleep: the real clock, in seconds.
    """

    def __init__(
        self,
        dilate: float,
        asynchronous: bool,
        counters: Counters,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.now = now
        self._sleep = sleep
        self._dilate = dilate
        self._asynchronous = asynchronous
        self._counters = counters
        self._free_at = now()

    def begin(self) -> float:
        """Return the earliest instant at which the next step can start."""
        return max(self.now(), self._free_at)

    def launch(self, cost_s: float, busy: bool, not_before: float = 0.0) -> float:
        """Start a step as early as the device can. Returns the instant of its end.

        cost_s: engine seconds. busy: the device had work since its last step. not_before: instant
        at which the step's data are there.
        """
        now = self.now()
        if not busy:
            self._free_at = max(self._free_at, now)
        elif self._asynchronous and now > self._free_at:
            self._late(now)
        self._free_at = max(self._free_at, not_before) + cost_s * self._dilate
        self._counters.add(steps=1, busy_s=cost_s)
        return self._free_at

    def wait(self, end: float) -> None:
        """Sleep until a step's end."""
        remaining = end - self.now()
        if remaining > 0:
            self._sleep(remaining)
        elif not self._asynchronous:
            self._late(end - remaining)

    def _late(self, now: float) -> None:
        self._counters.add(late_s=(now - self._free_at) / self._dilate)
        self._free_at = now
