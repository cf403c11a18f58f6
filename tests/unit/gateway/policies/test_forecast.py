"""Forecasts: remaining calls with censoring."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.policies.forecast import MIN_SAMPLES, PathLengths


def play(lengths: PathLengths, kind: str, calls: int, *, ended: bool = True) -> None:
    for position in range(1, calls):
        lengths.went_on(kind, position)
    if ended:
        lengths.ended(kind, calls)


def test_remaining_calls_are_the_median() -> None:
    lengths = PathLengths()
    for calls in (3, 5, 5, 5, 5, 5, 5, 9):
        play(lengths, "k", calls)
    assert [lengths.remaining("k", at) for at in (1, 4, 5, 9)] == [4, 1, 0, 0]


def test_nothing_is_known_at_first() -> None:
    assert PathLengths().remaining("k", 1) == 0


def test_running_units_count_at_the_calls_that_they_have_passed() -> None:
    """Learning from ended units only would forget the long ones."""
    lengths = PathLengths()
    for _ in range(10):
        play(lengths, "k", 2)
    assert lengths.remaining("k", 1) == 1
    for _ in range(30):
        play(lengths, "k", 20, ended=False)
    assert lengths.remaining("k", 1) >= 18


def test_rare_kind_uses_all_programs() -> None:
    lengths = PathLengths()
    for _ in range(MIN_SAMPLES):
        play(lengths, "common", 6)
    play(lengths, "rare", 1)
    assert lengths.remaining("rare", 1) == lengths.remaining("new", 1) == 5


@given(st.lists(st.tuples(st.integers(1, 600), st.booleans()), max_size=20), st.integers(1, 600))
def test_remaining_calls_are_bounded(units, position) -> None:
    lengths = PathLengths()
    for calls, ended in units:
        play(lengths, "k", calls, ended=ended)
    longest = max((calls for calls, _ in units), default=1)
    assert 0 <= lengths.remaining("k", position) <= max(longest - position, 0)
