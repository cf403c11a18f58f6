"""Pairs of calls."""

from __future__ import annotations

import pytest
from weft_bench.micro.lineage.command import pairs, times


def test_pairs_of_calls_in_one_program_are_counted():
    assert pairs([(0, "a"), (0, "a"), (1, "b"), (1, "b")]) == (1.0, 1.0)
    assert pairs([(0, "a"), (0, "a"), (0, "b"), (1, "b")]) == (1 / 2, 1 / 3)
    assert pairs([(0, "a"), (1, "b")]) == (1.0, 1.0)


def test_times_are_microseconds():
    assert times([1e-6, 3e-6], "ask/") == pytest.approx({"ask/p50": 2.0, "ask/p99": 2.98})
