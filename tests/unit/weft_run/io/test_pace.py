"""Windows shrink when calls are refused, and grow again with answers."""

from __future__ import annotations

from weft_run.io.pace import Pace


def test_refusals_halve_a_window_once_per_second() -> None:
    pace = Pace({"a": 8, "b": 8})
    assert pace.refused("a", 10.0) == 4
    assert pace.refused("a", 10.5) is None
    assert pace.refused("a", 11.0) == 2
    assert pace.refused("a", 12.0) == 1
    assert pace.refused("a", 13.0) is None
    assert pace.refused("b", 10.5) == 4


def test_each_window_of_answers_adds_a_call() -> None:
    pace = Pace({"a": 4})
    assert pace.answered("a") is None
    assert pace.refused("a", 0.0) == 2
    grown = [pace.answered("a") for _ in range(9)]
    assert grown == [None, 3, None, None, 4, None, None, None, None]
