"""Forecasts: remaining calls with censoring, costs, answer lengths."""

from __future__ import annotations

import random

import pytest
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
    assert [lengths.ahead("k", at).calls for at in (1, 4, 5, 9)] == [4, 1, 0, 0]


def test_nothing_is_known_at_first() -> None:
    assert PathLengths().ahead("k", 1).calls == 0


def test_running_units_count_at_the_calls_that_they_have_passed() -> None:
    """Learning from ended units only would forget the long ones."""
    lengths = PathLengths()
    for _ in range(10):
        play(lengths, "k", 2)
    assert lengths.ahead("k", 1).calls == 1
    for _ in range(30):
        play(lengths, "k", 20, ended=False)
    assert lengths.ahead("k", 1).calls >= 18


def test_rare_kind_uses_all_programs() -> None:
    lengths = PathLengths()
    for _ in range(MIN_SAMPLES):
        play(lengths, "common", 6)
    play(lengths, "rare", 1)
    assert lengths.ahead("rare", 1).calls == lengths.ahead("new", 1).calls == 5


@given(st.lists(st.tuples(st.integers(1, 600), st.booleans()), max_size=20), st.integers(1, 600))
def test_remaining_calls_are_bounded(units, position) -> None:
    lengths = PathLengths()
    for calls, ended in units:
        play(lengths, "k", calls, ended=ended)
    longest = max((calls for calls, _ in units), default=1)
    assert 0 <= lengths.ahead("k", position).calls <= max(longest - position, 0)


def test_nine_tenths_of_the_remaining_paths_are_within_their_quantile() -> None:
    rng, lengths, seen, covered = random.Random(1), PathLengths(), 0, 0
    running: list[tuple[int, list[tuple[int, int]]]] = []
    for number in range(1200):
        running.append((max(round(rng.lognormvariate(2.0, 0.6)), 1), []))
        for calls, forecasts in running:
            at = len(forecasts) + 1
            forecasts.append((at, lengths.ahead("k", at)[1]))
            if at < calls:
                lengths.went_on("k", at)
                continue
            lengths.ended("k", at)
            seen += len(forecasts) if number > 200 else 0
            covered += sum(calls - at <= p90 for at, p90 in forecasts if number > 200)
        running = [unit for unit in running if len(unit[1]) < unit[0]]
    assert 0.87 <= covered / seen <= 0.95


def test_percentile_of_few_units_is_wide() -> None:
    """The longest of a few units is not yet the 90th percentile, and units in progress have not
    shown their ends.
    """
    rng, seen, covered = random.Random(3), 0, 0
    for _ in range(60):
        lengths, running = PathLengths(), []
        units = [max(round(rng.lognormvariate(2.0, 0.6)), 1) for _ in range(20)]
        while units or running:
            running += [(units.pop(), []) for _ in range(min(8 - len(running), len(units)))]
            for calls, forecasts in running:
                at = len(forecasts) + 1
                forecasts.append((at, lengths.ahead("k", at)[1]))
                if at < calls:
                    lengths.went_on("k", at)
                    continue
                lengths.ended("k", at)
                seen += len(forecasts)
                covered += sum(calls - at <= p90 for at, p90 in forecasts)
            running = [unit for unit in running if len(unit[1]) < unit[0]]
    assert 0.87 <= covered / seen <= 0.97


def test_forecast_of_a_path_follows_new_units() -> None:
    """Forecasts are kept until the kind has grown by a sixteenth."""
    lengths = PathLengths()
    for _ in range(100):
        play(lengths, "k", 3)
    assert lengths.ahead("k", 1)[:2] == (2, 2)
    for _ in range(400):
        play(lengths, "k", 9)
    assert lengths.ahead("k", 1)[:2] == (8, 8)


def test_seconds_of_later_calls_are_those_of_their_positions() -> None:
    """The first call of a workflow is often short, and says nothing about the later ones."""
    lengths = PathLengths()
    for _ in range(2 * MIN_SAMPLES):
        play(lengths, "k", 3)
        for position, seconds in ((1, 0.5), (2, 8.0), (3, 30.0)):
            lengths.served("k", position, seconds)
    assert lengths.ahead("k", 1) == (2, 2, pytest.approx(38.0), pytest.approx(38.0))
    assert lengths.ahead("k", 2).seconds == pytest.approx(30.0)
    assert lengths.ahead("k", 3) == (0, 0, 0.0, 0.0)


def test_seconds_of_many_calls_are_more_than_those_of_the_median() -> None:
    lengths = PathLengths()
    for calls in (2, 2, 2, 2, 2, 2, 6, 6, 6, 6):
        play(lengths, "k", calls)
        for position in range(1, calls + 1):
            lengths.served("k", position, 2.0)
    assert lengths.ahead("k", 1) == (1, 5, pytest.approx(2.0), pytest.approx(10.0))


def test_seconds_of_rare_positions_are_the_mean_of_all() -> None:
    lengths = PathLengths()
    play(lengths, "k", 2 * MIN_SAMPLES)
    for position in range(1, MIN_SAMPLES + 1):
        lengths.served("k", position, float(position % 2))
    found = lengths.ahead("k", MIN_SAMPLES)
    assert found.seconds == pytest.approx(found.calls * 0.5)


def test_seconds_are_unknown_at_first_and_follow_new_calls() -> None:
    lengths = PathLengths()
    for _ in range(2 * MIN_SAMPLES):
        play(lengths, "k", 2)
    assert lengths.ahead("k", 1) == (1, 1, 0.0, 0.0)
    for seconds in (1.0, 9.0):
        for _ in range(300):
            play(lengths, "k", 2)
            lengths.served("k", 2, seconds)
    assert lengths.ahead("k", 1).seconds == pytest.approx(9.0, rel=0.1)
