"""Timers of one connection, on a simulated clock."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any, cast

from weft_gateway.api.timers import Deadline, ReaderWatch


class Handle:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """An event loop's timers. set: every timer that was ever scheduled."""

    def __init__(self) -> None:
        self.now = 0.0
        self.set: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Handle:
        self.set.append(Handle(self.now + seconds, callback))
        return self.set[-1]

    def pass_to(self, now: float) -> None:
        while due := [one for one in self.set if one.at <= now and not one.cancelled]:
            first = min(due, key=lambda one: one.at)
            first.cancelled, self.now = True, first.at
            first.callback()
        self.now = now


class Transport:
    def __init__(self) -> None:
        self.unread = 0

    def get_write_buffer_size(self) -> int:
        return self.unread


def a_deadline() -> tuple[Clock, Deadline, list[float]]:
    clock, passed = Clock(), list[float]()
    loop = cast(asyncio.AbstractEventLoop, clock)
    return clock, Deadline(loop, lambda: passed.append(clock.now)), passed


def test_deadline_fires_once():
    clock, deadline, passed = a_deadline()
    deadline.set(5)
    clock.pass_to(4.9)
    assert passed == []
    clock.pass_to(100)
    assert passed == [5]


def test_later_deadline_keeps_its_timer():
    clock, deadline, passed = a_deadline()
    for now in range(100):
        clock.pass_to(now / 100)
        deadline.set(10)
    assert len(clock.set) == 1
    clock.pass_to(100)
    assert passed == [10.99]


def test_earlier_deadline_fires_in_time():
    clock, deadline, passed = a_deadline()
    deadline.set(75)
    deadline.set(20)
    clock.pass_to(100)
    assert passed == [20]


def test_fired_deadline_can_be_set_again():
    clock, deadline, passed = a_deadline()
    deadline.set(5)
    clock.pass_to(10)
    deadline.set(5)
    clock.pass_to(20)
    assert passed == [5, 15]


def test_cancelled_deadline_never_fires():
    clock, deadline, passed = a_deadline()
    deadline.set(5)
    deadline.cancel()
    clock.pass_to(10)
    deadline.set(5)
    clock.pass_to(20)
    assert passed == []


def test_cancelled_deadline_does_not_reference_its_owner():
    class Owner:
        def __init__(self) -> None:
            self.deadline = Deadline(cast(asyncio.AbstractEventLoop, Clock()), self.late)

        def late(self) -> None:
            pass

    gc.disable()
    try:
        owner = Owner()
        owner.deadline.cancel()
        gone = weakref.ref(owner)
        del owner
        assert gone() is None
    finally:
        gc.enable()


def a_watch() -> tuple[Clock, Transport, ReaderWatch, list[float]]:
    clock, transport, stalled = Clock(), Transport(), list[float]()
    watch = ReaderWatch(
        cast(Any, clock), cast(Any, transport), 10, lambda: stalled.append(clock.now)
    )
    return clock, transport, watch, stalled


def test_client_that_reads_too_slowly_has_stalled():
    clock, transport, watch, stalled = a_watch()
    transport.unread = 100_000
    watch.start()
    clock.pass_to(5)
    transport.unread -= 16_383
    clock.pass_to(100)
    assert stalled == [10]


def test_client_that_reads_has_not_stalled():
    clock, transport, watch, stalled = a_watch()
    transport.unread = 40_000
    watch.start()
    for now, unread in ((10, 23_616), (20, 7_000), (30, 0), (100, 0)):
        transport.unread = unread
        clock.pass_to(now)
    assert stalled == []


def test_stall_timer_ends_with_the_wait():
    clock, transport, watch, stalled = a_watch()
    watch.start()
    transport.unread = 1
    watch.start()
    watch.stop()
    clock.pass_to(100)
    assert stalled == []


def test_bytes_written_during_a_check_do_not_count_as_unread():
    clock, transport, watch, stalled = a_watch()
    transport.unread = 40_000
    watch.start()
    clock.pass_to(5)
    watch.wrote(40_000)
    transport.unread = 50_000
    clock.pass_to(15)
    assert stalled == []
    clock.pass_to(100)
    assert stalled == [20]
