"""Timers of one connection: a deadline that moves often, and a check that the client reads."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

# A client that reads less than this within a send timeout counts as stalled.
LEAST_READ_BYTES: Final = 16_384
# Bytes per second that a body needs, over each time of `body_timeout_s`. Files are large, and a
# client that sends a few bytes at a time would hold its connection for hours.
LEAST_RATE: Final = 16_384


class Deadline:
    """A deadline that moves with each request and rarely passes. Moving it to a later time leaves
    the timer unchanged: a timer that fires before the deadline is set again for the remaining time.
    """

    __slots__ = ("_at", "_loop", "_passed", "_timer", "_wakes")

    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[[], None]) -> None:
        """passed: called when the deadline has passed. Initially no deadline is set."""
        self._loop = loop
        self._passed = passed
        self._timer: asyncio.TimerHandle | None = None
        self._at = self._wakes = math.inf

    def set(self, seconds: float) -> None:
        """Move the deadline to `seconds` from now."""
        self._at = at = self._loop.time() + seconds
        if at < self._wakes:
            if self._timer is not None:
                self._timer.cancel()
            self._start(seconds)

    def cancel(self) -> None:
        """Remove the deadline and drop the callback. The callback references its owner, which also
        owns the deadline; without this, the owner would wait for the garbage collector.
        """
        self._passed = _nothing
        self._at = self._wakes = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, seconds: float) -> None:
        self._wakes = self._at
        self._timer = self._loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        left = self._at - self._loop.time()
        if left > 0:
            self._start(left)
        else:
            self._at = self._wakes = math.inf
            self._timer = None
            self._passed()


def _nothing() -> None:
    """The callback of a cancelled deadline."""


class ReaderWatch:
    """Checks that a client reads while bytes wait to be written."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.WriteTransport,
        timeout_s: float,
        stalled: Callable[[], None],
    ) -> None:
        """stalled: called if the client has read almost nothing within `timeout_s`."""
        self._loop = loop
        self._transport = transport
        self._timeout_s = timeout_s
        self._stalled = stalled
        self._unread = self._written = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check until all bytes are read, or until `stop`."""
        if self._timer is None:
            self._unread, self._written = self._transport.get_write_buffer_size(), 0
            if self._unread:
                self._timer = self._loop.call_later(self._timeout_s, self._check)

    def wrote(self, size: int) -> None:
        """Count bytes that were written. They may be fewer than the bytes on the wire."""
        self._written += size
        self.start()

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        before, left = self._unread, self._transport.get_write_buffer_size()
        if not left:
            return
        if before + self._written - left < min(before, LEAST_READ_BYTES):
            self._stalled()
        else:
            self.start()
