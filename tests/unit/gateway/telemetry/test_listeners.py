"""Listeners get their program's events in order, and never make anybody wait."""

from __future__ import annotations

import pytest

from gateway.model import ProgramKey
from gateway.telemetry.listeners import Listener, Listeners

KEY, OTHER = ProgramKey("t", "p"), ProgramKey("t", "q")


@pytest.mark.anyio
async def test_events_reach_those_who_listen_to_the_program():
    listeners = Listeners()
    one, two = listeners.add(KEY), listeners.add(KEY)
    listeners.tell(KEY, {"n": 1})
    listeners.tell(OTHER, {"n": 2})
    listeners.tell(KEY, {"n": 3})
    assert [await one.get(), await one.get()] == [{"n": 1}, {"n": 3}]
    assert (await two.get())["n"] == 1
    listeners.remove(KEY, one)
    listeners.remove(KEY, one)
    assert KEY in listeners
    listeners.remove(KEY, two)
    assert KEY not in listeners
    assert listeners._of == {}


@pytest.mark.anyio
async def test_who_is_slow_loses_the_oldest_and_knows_how_many():
    listener = Listener(limit=2)
    for number in range(5):
        listener.put({"n": number})
    assert listener.lost == 3
    assert [(await listener.get())["n"], (await listener.get())["n"]] == [3, 4]


def test_a_program_has_so_many_listeners_and_no_more():
    listeners = Listeners(limit=1)
    assert listeners.add(KEY) is not None
    assert listeners.add(KEY) is None
    assert listeners.add(OTHER) is not None
