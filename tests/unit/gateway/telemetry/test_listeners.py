"""Listeners get their program's events in order and never block the sender."""

from __future__ import annotations

import asyncio

import pytest
from weft_gateway.model import ProgramKey
from weft_gateway.telemetry.listeners import Listener, Listeners

KEY, OTHER = ProgramKey("t", "p"), ProgramKey("t", "q")


@pytest.mark.anyio
async def test_events_reach_the_listeners_of_their_program():
    listeners = Listeners()
    one, two = listeners.add(KEY), listeners.add(KEY)
    listeners.publish(KEY, {"n": 1})
    listeners.publish(OTHER, {"n": 2})
    listeners.publish(KEY, {"n": 3})
    assert [await one.get(), await one.get()] == [b'{"n":1}', b'{"n":3}']
    assert await two.get() == b'{"n":1}'
    listeners.remove(KEY, one)
    listeners.remove(KEY, one)
    assert KEY in listeners
    listeners.remove(KEY, two)
    assert KEY not in listeners
    assert listeners._of == {}


@pytest.mark.anyio
async def test_slow_listener_loses_its_oldest_events_and_counts_them():
    listener = Listener(limit=2)
    for number in range(5):
        listener.put(b"%d" % number)
    assert listener.lost == 3
    assert [await listener.get(), await listener.get()] == [b"3", b"4"]


@pytest.mark.anyio
async def test_queue_is_bounded_in_bytes_except_for_a_single_event():
    listener = Listener(limit_bytes=10)
    for event in (b"a" * 6, b"b" * 4, b"c", b"d" * 50):
        listener.put(event)
    assert (listener.lost, listener._bytes) == (3, 50)
    assert await listener.get() == b"d" * 50
    listener.put(b"e" * 6)
    listener.put(b"f" * 4)
    assert [await listener.get(), await listener.get(), listener._bytes] == [b"e" * 6, b"f" * 4, 0]


@pytest.mark.anyio
async def test_listeners_get_queued_events_before_the_end():
    listeners = Listeners()
    one, two = listeners.add(KEY), listeners.add(OTHER)
    listeners.publish(KEY, {"n": 1})
    waiting = asyncio.ensure_future(two.get())
    await asyncio.sleep(0)
    listeners.close()
    assert [await one.get(), await one.get(), await waiting] == [b'{"n":1}', None, None]
    late = listeners.add(KEY)
    assert await late.get() is None
