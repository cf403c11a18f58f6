"""Pause and resume by thresholds."""

from __future__ import annotations

from weft_bench.virtual.gate import FORCE_S, PauseAndResume


def test_programs_are_held_until_their_contexts_fit():
    gate = PauseAndResume({"r": 1000})
    assert gate.arrive("a", 0, 500, 0.0) == "r"
    assert gate.arrive("b", 0, 400, 1.0) is None
    # First in, first out, though this one fits.
    assert gate.arrive("c", 0, 100, 2.0) is None
    gate.answered("a", 600)
    assert list(gate.released()) == []
    gate.over("a")
    assert list(gate.released()) == [("b", 0), ("c", 0)]
    assert gate.arrive("b", 0, 400, 3.0) == "r"


def test_the_last_programs_are_paused_between_their_calls():
    gate = PauseAndResume({"r": 1000})
    for name in "ab":
        assert gate.arrive(name, 0, 390, 0.0) == "r"
    gate.answered("b", 400)
    # 1,000 tokens are above 95%, and `b` has no call.
    gate.answered("a", 600)
    assert gate.arrive("b", 1, 400, 1.0) is None
    assert gate.arrive("a", 1, 600, 1.0) == "r"


def test_a_held_call_goes_on_after_a_limit_of_time():
    gate = PauseAndResume({"r": 1000})
    gate.arrive("a", 0, 900, 0.0)
    assert gate.arrive("b", 0, 900, 0.0) is None
    assert gate.arrive("b", 0, 900, FORCE_S) == "r"


def test_a_program_goes_to_the_replica_with_room_and_a_large_one_to_an_empty_one():
    gate = PauseAndResume({"r": 1000, "s": 1000})
    assert gate.arrive("a", 0, 950, 0.0) == "r"
    assert gate.arrive("b", 0, 300, 0.0) == "s"
    # All calls of an active program go where it is.
    assert gate.arrive("a", 1, 950, 0.0) == "r"
