"""Pins of programs on blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.pins import EndedPin, Pins


def pinned(limit: int = 4, **programs: list[int]) -> Pins:
    """Pins, the oldest first, that end after 100 seconds."""
    pins = Pins(limit)
    for program, blocks in programs.items():
        pins.retain(program, 100.0)
        pins.extend(program, blocks)
    return pins


def test_a_block_that_two_programs_pin_counts_once_and_stays_until_both_release_it():
    pins = pinned(p=[1, 2], q=[1, 3])
    assert len(pins.blocks) == 3
    assert pins.release("p") == [2]
    assert pins.holds(1)
    assert pins.release("q") == [1, 3]
    assert not pins.blocks


def test_the_oldest_pins_yield_until_there_is_room():
    pins = pinned(a=[1], b=[2], c=[3, 4])
    pins.retain("d", 100.0)
    assert pins.extend("d", [5, 6]) == ([5, 6], [EndedPin("a", [1]), EndedPin("b", [2])])
    assert pins.blocks == {3, 4, 5, 6}


def test_a_renewed_pin_is_the_newest():
    pins = pinned(a=[1, 2], b=[3, 4])
    pins.retain("a", 200.0)
    pins.retain("c", 100.0)
    assert pins.extend("c", [5])[1] == [EndedPin("b", [3, 4])]


def test_an_older_pin_that_grows_does_not_end_a_newer_one():
    pins = pinned(a=[1, 2], b=[3, 4])
    assert pins.extend("a", [1, 2, 5]) == ([], [])
    assert pins.blocks == {1, 2, 3, 4}


def test_a_pin_without_blocks_does_not_yield_since_it_makes_no_room():
    pins = pinned(a=[], b=[1, 2, 3, 4])
    pins.retain("c", 100.0)
    assert pins.extend("c", [5])[1] == [EndedPin("b", [1, 2, 3, 4])]
    assert "a" in pins


def test_a_context_larger_than_the_limit_is_pinned_from_its_beginning():
    pins = pinned(p=[7, 5, 6, 1, 2, 3])
    assert pins.blocks == {7, 5, 6, 1}


def test_time_ends_pins_unless_they_were_renewed():
    pins = Pins(4)
    for program, until in (("p", 10.0), ("q", 20.0), ("r", 10.0)):
        pins.retain(program, until)
    pins.extend("p", [1])
    pins.retain("r", 30.0)
    assert pins.expire(9.9) == []
    assert pins.expire(10.0) == [EndedPin("p", [1])]
    assert "q" in pins
    assert "r" in pins
    assert [pin.program for pin in pins.expire(1e9)] == ["q", "r"]
    assert pins.expire(1e9) == []


def test_a_pin_can_be_made_shorter():
    pins = Pins(4)
    pins.retain("p", 100.0)
    pins.retain("p", 10.0)
    assert [pin.program for pin in pins.expire(10.0)] == ["p"]


def test_a_block_that_lost_its_content_is_not_pinned():
    pins = pinned(p=[1, 2], q=[1])
    pins.drop(1)
    pins.drop(3)
    assert pins.blocks == {2}
    assert pins.violations() == []


def test_a_program_without_a_pin():
    pins = Pins(4)
    assert pins.release("nobody") == []
    with pytest.raises(KeyError):
        pins.extend("nobody", [1])


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["retain", "extend", "loosen", "release", "expire", "drop", "clear"]),
        st.sampled_from("abcd"),
        st.lists(st.integers(0, 9), max_size=5, unique=True),
        st.integers(0, 20),
    ),
    max_size=50,
)


@given(EVENTS, st.integers(0, 6))
def test_any_sequence_of_events_keeps_the_limit_and_returns_every_block(events, limit):
    pins = Pins(limit)
    # The pins as implied by the returned values alone.
    told: set[int] = set()
    for now, (kind, program, blocks, amount) in enumerate(events):
        if kind == "retain":
            pins.retain(program, float(now + amount))
        elif kind == "extend" and program in pins:
            added, yielded = pins.extend(program, blocks)
            for pin in yielded:
                told -= set(pin.blocks)
            assert not told & set(added)
            told |= set(added)
        elif kind == "loosen" and program in pins:
            told -= set(pins.loosen(program, pins.of(program)[: amount % 3]))
        elif kind == "release":
            told -= set(pins.release(program))
            assert program not in pins
        elif kind == "expire":
            for pin in pins.expire(float(now)):
                told -= set(pin.blocks)
        elif kind == "drop":
            pins.drop(amount)
            told.discard(amount)
        elif kind == "clear":
            pins.clear()
            told.clear()
        assert pins.blocks == told
        assert pins.violations() == []


def shared(limit: int, **shares: float) -> Pins:
    """Pins of tenants with these shares of the limit."""
    return Pins(limit, shares.__getitem__)


def pin(pins: Pins, program: str, tenant: str, *blocks: int) -> tuple[list[int], list[str]]:
    pins.retain(program, 100.0)
    added, yielded = pins.extend(program, blocks, tenant)
    assert pins.violations() == []
    return added, [each.program for each in yielded]


def test_a_tenant_s_pins_fill_its_share_and_leave_those_of_others():
    pins = shared(8, honest=0.5, greedy=0.5)
    assert pin(pins, "mine", "honest", 0, 1) == ([0, 1], [])
    assert pin(pins, "one", "greedy", 2, 3, 4) == ([2, 3, 4], [])
    assert pin(pins, "two", "greedy", 5, 6, 7, 8, 9) == ([5, 6, 7, 8], ["one"])
    assert pins.by_tenant() == {"honest": 2, "greedy": 4}


def test_a_heavier_tenant_may_pin_more():
    pins = shared(8, a=0.75, b=0.25)
    assert len(pin(pins, "p", "a", *range(8))[0]) == 6
    assert len(pin(pins, "q", "b", *range(8, 16))[0]) == 2


def test_a_tenant_with_all_pins_yields_when_another_tenant_comes():
    shares = {"first": 1.0, "second": 0.5}
    pins = Pins(8, shares.__getitem__)
    pin(pins, "old", "first", 0, 1, 2, 3)
    pin(pins, "young", "first", 4, 5, 6, 7)
    shares["first"] = 0.5
    assert pin(pins, "new", "second", 8, 9) == ([8, 9], ["old"])
    assert pins.by_tenant() == {"first": 4, "second": 2}


def test_a_shared_block_is_charged_to_its_first_tenant_and_then_to_the_other():
    pins = shared(8, a=0.5, b=0.5)
    pin(pins, "p", "a", 0, 1)
    pin(pins, "q", "b", 0, 2)
    assert pins.by_tenant() == {"a": 2, "b": 1}
    assert pins.release("p") == [1]
    assert pins.by_tenant() == {"b": 2}
    pins.drop(0)
    assert pins.by_tenant() == {"b": 1}
    # A program whose tenant was not known at first.
    pins.extend("q", [], "a")
    assert pins.by_tenant() == {"a": 1}
    assert pins.violations() == []
