"""The slices of a play."""

from __future__ import annotations

import pytest
from weft_bench.peers.drive import Call, Played
from weft_bench.peers.outcome import Outcome
from weft_bench.peers.plays import sliced


def outcome(completion_s: float, *, long_gaps: bool) -> Outcome:
    return Outcome(
        completion_s, 1.0, 1, 0, 0, 64, 32, 0, 3, 0.1, 0, (), long_gaps
    )  # fmt: skip


PLAYED = Played(4.0, [Call(0, 0, 0.0, 2.0, "a", 0.0), Call(1, 0, 0.0, 4.0, "", 0.0, "500: x")])


def test_programs_with_long_gaps_are_a_separate_slice():
    found = [outcome(1.0, long_gaps=False), outcome(9.0, long_gaps=True)]
    figures = sliced(found, PLAYED, 2.0, 0.5)
    assert set(figures) == {"all", "rest", "long gaps"}
    assert figures["all"]["mean"] == pytest.approx(10)
    assert figures["rest"]["mean"] == pytest.approx(2)
    assert figures["long gaps"]["mean"] == pytest.approx(18)


def test_rate_counts_answered_calls_in_real_time():
    figures = sliced([outcome(1.0, long_gaps=False)], PLAYED, 2.0, 0.5)
    assert set(figures) == {"all"}
    assert figures["all"]["calls_per_s"] == pytest.approx(0.25)
    assert (figures["all"]["duration_s"], figures["all"]["late"]) == (4.0, 0.5)
