"""Timers of one connection, on a simulated clock."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import cast

from weft_gateway.api.timers import Deadline


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
