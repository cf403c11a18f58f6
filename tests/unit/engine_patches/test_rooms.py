"""Room that is kept for programs between two calls."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_patches.rooms import Asking, KeptRooms, PrefillPace


def asks(name: str, blocks: int, *, warm: bool = False, patience_s: float = 9.0) -> Asking:
    return Asking(name, f"program of {name}", blocks, warm, patience_s)


def test_room_is_kept_until_its_time_is_over_or_the_program_is_back():
    rooms = KeptRooms()
    rooms.keep("a", 30, 5.0)
    rooms.keep("b", 20, 7.0)
    rooms.keep("a", 40, 6.0)
    assert (rooms.blocks, rooms.of("a"), rooms.next_end()) == (60, 40, 6.0)
    rooms.expire(6.0)
    assert (rooms.blocks, rooms.of("a"), rooms.next_end()) == (20, 0, 7.0)
    rooms.drop("b")
    rooms.drop("b")
    assert (rooms.blocks, rooms.next_end()) == (0, math.inf)


def test_a_cold_call_waits_where_it_would_take_what_is_kept_for_another():
    rooms = KeptRooms()
    rooms.keep("away", 60, 5.0)
    assert rooms.held([asks("x", 40)], free=100, running=1) == []
    assert rooms.held([asks("x", 41)], free=100, running=1) == ["x"]
    # Who comes behind may still fit.
    assert rooms.held([asks("x", 41), asks("y", 40), asks("z", 1)], 100, 1) == ["x", "z"]


def test_a_program_does_not_wait_for_its_own_room():
    rooms = KeptRooms()
    rooms.keep("program of x", 60, 5.0)
    assert rooms.held([asks("x", 90)], free=100, running=1) == []


@pytest.mark.parametrize("lucky", [asks("x", 90, warm=True), asks("x", 90, patience_s=0.0)])
def test_who_is_warm_or_out_of_patience_does_not_wait(lucky):
    rooms = KeptRooms()
    rooms.keep("away", 60, 5.0)
    assert rooms.held([lucky], free=100, running=1) == []


def test_while_nothing_runs_somebody_is_let_in():
    rooms = KeptRooms()
    rooms.keep("away", 60, 5.0)
    assert rooms.held([asks("x", 90), asks("y", 90)], free=100, running=0) == ["y"]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.booleans(), st.floats(-5, 5)), min_size=1),
    st.lists(st.integers(1, 30), max_size=6),
    st.integers(0, 200),
    st.integers(0, 3),
)
def test_somebody_runs_or_is_let_in_and_what_is_let_in_leaves_the_room(asked, kept, free, running):
    rooms = KeptRooms()
    for number, blocks in enumerate(kept):
        rooms.keep(f"away {number}", blocks, 1.0)
    asking = [Asking(str(n), f"p{n}", b, w, p) for n, (b, w, p) in enumerate(asked)]
    held = set(rooms.held(asking, free, running))
    assert running > 0 or len(held) < len(asking)
    assert not any(one.sequence in held and (one.warm or one.patience_s <= 0) for one in asking)
    polite = [one for one in asking if one.sequence not in held]
    if kept and running and all(not one.warm and one.patience_s > 0 for one in polite):
        assert sum(one.blocks for one in polite) <= max(0, free - sum(kept))


def test_the_pace_is_that_of_steps_that_prefill():
    pace = PrefillPace()
    pace.note(255, 1, 1.0)
    pace.note(400, 300, 1.0)
    pace.note(2000, 1, 0.0)
    assert pace.token_s == 0.0
    pace.note(2000, 10, 0.2)
    assert pace.token_s == pytest.approx(1e-4)
    pace.note(2000, 10, 0.4)
    assert pace.token_s == pytest.approx(1.1e-4)
