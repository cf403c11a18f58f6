"""Runs in this process: windows of programs."""

from __future__ import annotations

from weft_gateway.runs.local import windows_of


def test_calls_in_flight_are_divided_among_programs() -> None:
    assert windows_of(["a", "b"], None) == {"a": 64, "b": 64}
    assert windows_of(["a", "b", "c"], 8) == {"a": 2, "b": 3, "c": 3}
    assert windows_of(["a", "b", "c"], 2) == {"a": 1, "b": 1}
