"""Cache reservations of programs between two calls."""

from __future__ import annotations

import math
from operator import eq

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.reservations import Admission, CacheReservations, PrefillPace


def chain(text: str) -> list[str]:
    """One hash per block of a context; each covers all text up to its block."""
    return [text[: end + 1] for end in range(len(text))]


def asks(
    name: str, blocks: int, *, warm: bool = False, max_hold_s: float = 9.0, begins: str = ""
) -> Admission:
    return Admission(name, f"program of {name}", blocks, warm, max_hold_s, chain(begins))


def away(blocks: int, program: str = "away") -> CacheReservations:
    rooms = CacheReservations()
    rooms.keep(program, blocks, 5.0, chain("x" * blocks))
    return rooms


def test_room_is_kept_until_its_time_is_over_or_the_program_is_back():
    rooms = CacheReservations()
    rooms.keep("a", 30, 5.0, chain("one" * 10))
    rooms.keep("b", 20, 7.0, chain("two" * 10))
    assert (rooms.blocks, rooms.of("a"), rooms.next_end()) == (50, 30, 5.0)
    rooms.claim("a", chain("one" * 10 + "and more"))
    assert (rooms.blocks, rooms.of("a"), rooms.next_end()) == (20, 0, 7.0)
    rooms.keep("a", 40, 6.0, chain("one" * 14))
    rooms.expire(6.0)
    assert (rooms.blocks, rooms.of("a"), rooms.next_end()) == (20, 0, 7.0)
    rooms.drop("b")
    rooms.drop("b")
    assert (rooms.blocks, rooms.next_end()) == (0, math.inf)


def used_to(rooms: CacheReservations, program: str, threads: int) -> None:
    """A program that has continued reserved contexts until it may have `threads` reservations."""
    for number in range(threads - 1):
        rooms.keep(program, 1, math.inf, [number])
        rooms.claim(program, [number])
    assert rooms.of(program) == 0


def test_threads_side_by_side_have_a_room_each():
    rooms = CacheReservations()
    used_to(rooms, "p", 2)
    rooms.keep("p", 30, 5.0, chain("a" * 30))
    rooms.keep("p", 20, 6.0, chain("b" * 20))
    rooms.keep("q", 10, 7.0, chain("a" * 30))
    assert (rooms.of("p"), rooms.blocks) == (50, 60)
    # The other thread's reservation stays, and so does that of another program with the same text.
    rooms.claim("p", chain("a" * 40))
    assert (rooms.of("p"), rooms.of("q")) == (20, 10)
    rooms.expire(6.0)
    assert (rooms.of("p"), rooms.blocks, rooms.next_end()) == (0, 10, 7.0)


def test_blocks_in_use_again_are_not_reserved():
    rooms = CacheReservations()
    rooms.keep("p", 100, 5.0, chain("s" * 40 + "a" * 60))
    rooms.claim("p", chain("s" * 40 + "b" * 9))
    assert rooms.of("p") == 60
    rooms.claim("p", chain("s" * 40 + "c" * 9))
    assert rooms.of("p") == 60
    # Most of it: the rest is what a thread has left that was joined.
    rooms.claim("p", chain("s" * 40 + "a" * 11))
    assert (rooms.of("p"), rooms.blocks, rooms.next_end()) == (0, 0, math.inf)


def test_a_call_that_begins_with_something_else_takes_nothing_up():
    rooms = CacheReservations()
    rooms.keep("p", 30, 5.0, chain("a" * 29))
    rooms.claim("p", chain("b" + "a" * 29))
    rooms.claim("p", chain(""))
    rooms.claim("nobody", chain("a" * 29))
    assert rooms.of("p") == 30


def test_nothing_is_kept_of_a_context_that_cannot_be_found_again():
    rooms = CacheReservations()
    rooms.keep("p", 1, 5.0, chain(""))
    rooms.keep("p", 0, 5.0, chain("a"))
    assert (rooms.blocks, rooms.next_end()) == (0, math.inf)


def test_of_a_program_that_never_goes_on_with_its_contexts_only_the_last_is_kept():
    rooms = CacheReservations()
    for number in range(9):
        rooms.keep("p", 10 + number, 5.0, [number])
        rooms.claim("p", [-number - 1])
    assert (rooms.of("p"), rooms.blocks) == (18, 18)


def test_an_expired_reservation_lowers_the_maximum():
    rooms = CacheReservations()
    used_to(rooms, "p", 4)
    for number in range(9):
        rooms.keep("p", 10, 5.0 + number, [number])
    assert rooms.of("p") == 40
    rooms.expire(10.0)
    for number in range(9):
        rooms.keep("p", 10, 20.0 + number, [number])
    assert rooms.of("p") == 30


def test_a_program_has_sixteen_rooms_at_most_the_last_ones():
    rooms = CacheReservations()
    used_to(rooms, "p", 99)
    for number in range(1000):
        rooms.keep("p", 1 + number, 5.0 + number, [number])
    assert rooms.of("p") == sum(range(985, 1001))
    assert (rooms.blocks, rooms.next_end()) == (rooms.of("p"), 5.0 + 984)
    rooms.drop("p")
    assert (rooms.blocks, rooms.next_end()) == (0, math.inf)
    rooms.keep("p", 10, 5.0, ["a"])
    rooms.keep("p", 10, 5.0, ["b"])
    assert rooms.of("p") == 10, "who ended begins anew"


def test_a_cold_call_waits_where_it_would_take_what_is_kept_for_another():
    rooms = away(60)
    assert rooms.held([asks("x", 40)], free=100, running=1) == []
    assert rooms.held([asks("x", 41)], free=100, running=1) == ["x"]
    # A later call may still fit.
    assert rooms.held([asks("x", 41), asks("y", 40), asks("z", 1)], 100, 1) == ["x", "z"]


def test_a_program_does_not_wait_for_its_own_rooms():
    rooms = CacheReservations()
    used_to(rooms, "program of x", 2)
    rooms.keep("program of x", 60, 5.0, chain("x" * 60))
    rooms.keep("program of x", 30, 5.0, chain("y" * 30))
    assert rooms.held([asks("x", 90)], free=100, running=1) == []


@pytest.mark.parametrize(
    ("begins", "waits"),
    [("x" * 60, False), ("x" * 31, False), ("x" * 20, True), ("z" * 60, True)],
    ids=["goes on", "goes on with most of it", "shares a little", "is new"],
)
def test_blocks_claimed_by_an_admitted_call_are_not_reserved_from_the_next(begins, waits):
    rooms = away(60, "program of a")
    asking = [asks("a", 10, begins=begins), asks("b", 51)]
    assert rooms.held(asking, free=100, running=1) == ["b"] * waits
    assert rooms.of("program of a") == 60, "nothing has happened yet"


def test_a_reservation_is_claimed_once_even_if_shared():
    rooms = away(60, "p")
    rooms.keep("q", 30, 5.0, chain("q" * 30))
    pair = [Admission(name, "p", 10, False, 9.0, chain("x" * 60)) for name in ("one", "two")]
    # Of 100 the pair takes 20; 30 are kept for q, so that 50 are left.
    assert rooms.held([*pair, asks("fits", 50)], 100, 1) == []
    assert rooms.held([*pair, asks("not", 51)], 100, 1) == ["not"]


@pytest.mark.parametrize("lucky", [asks("x", 90, warm=True), asks("x", 90, max_hold_s=0.0)])
def test_warm_calls_and_calls_past_their_hold_are_not_deferred(lucky):
    assert away(60).held([lucky], free=100, running=1) == []


def test_an_idle_engine_admits_a_call():
    assert away(60).held([asks("x", 90), asks("y", 90)], free=100, running=0) == ["y"]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.booleans(), st.floats(-5, 5)), min_size=1),
    st.lists(st.integers(1, 30), max_size=6),
    st.integers(0, 200),
    st.integers(0, 3),
)
def test_a_call_runs_or_is_admitted_and_admissions_respect_reservations(asked, kept, free, running):
    rooms = CacheReservations()
    for number, blocks in enumerate(kept):
        rooms.keep(f"away {number}", blocks, 1.0, chain("x" * blocks))
    asking = [Admission(str(n), f"p{n}", b, w, p) for n, (b, w, p) in enumerate(asked)]
    held = set(rooms.held(asking, free, running))
    assert running > 0 or len(held) < len(asking)
    assert not any(one.sequence in held and (one.warm or one.max_hold_s <= 0) for one in asking)
    polite = [one for one in asking if one.sequence not in held]
    if kept and running and all(not one.warm and one.max_hold_s > 0 for one in polite):
        assert sum(one.blocks for one in polite) <= max(0, free - sum(kept))


TEXTS = st.sampled_from(["a", "ab", "abc", "abcd", "abd", "b", "bc", ""])
PROGRAMS = st.sampled_from("pq")
COURSE = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), PROGRAMS, TEXTS, st.integers(0, 5)),
        st.tuples(st.just("take"), PROGRAMS, TEXTS, st.just(0)),
        st.tuples(st.just("drop"), PROGRAMS, st.just(""), st.just(0)),
        st.tuples(st.just("time"), st.just(""), st.just(""), st.integers(0, 3)),
    ),
    max_size=60,
)


@given(COURSE)
def test_any_course_of_events_leaves_the_sums_right_and_the_end_that_is_next(course):
    rooms, now = CacheReservations(), 0.0
    model: list[list] = []
    most = {"p": 1, "q": 1}
    for event, program, text, number in course:
        if event == "keep":
            rooms.keep(program, number, now + number, chain(text))
            if number and text:
                mine = [room for room in model if room[0] == program]
                for room in mine[: max(0, len(mine) + 1 - most[program])]:
                    model.remove(room)
                model.append([program, text, number, now + number])
        elif event == "take":
            rooms.claim(program, chain(text))
            for room in model:
                common = sum(map(eq, chain(room[1]), chain(text)))
                if room[0] == program and common:
                    taken = 2 * common > len(room[1])
                    room[2] = 0 if taken else min(room[2], len(room[1]) - common)
                    most[program] = min(16, most[program] + taken)
        elif event == "drop":
            rooms.drop(program)
            model = [room for room in model if room[0] != program]
            most[program] = 1
        else:
            now += number
            rooms.expire(now)
            for room in [room for room in model if room[3] <= now]:
                model.remove(room)
                most[room[0]] = max(1, most[room[0]] - 1)
        model = [room for room in model if room[2]]
        assert [rooms.of(name) for name in "pq"] == [
            sum(room[2] for room in model if room[0] == name) for name in "pq"
        ]
        assert rooms.blocks == rooms.of("p") + rooms.of("q")
        assert rooms.next_end() == min((room[3] for room in model), default=math.inf)


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
