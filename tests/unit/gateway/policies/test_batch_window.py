"""The window of batches beside other calls."""

from __future__ import annotations

from math import inf

import pytest
from weft_gateway.policies.batch_window import EXPECTED_S, apart_s, by_use, credit, is_shared


@pytest.mark.parametrize(
    ("slots", "others", "since_s", "calls"),
    [
        (8, 0, inf, 10),
        (8, 0, EXPECTED_S + 1, 10),
        (8, 0, 1.0, 4),
        (8, 2, 1.0, 4),
        (8, 2, inf, 4),
        (8, 5, 1.0, 3),
        (8, 50, 1.0, 1),
        (4, 0, 1.0, 2),
        (32, 8, 1.0, 24),
        (32, 9, 1.0, 23),
        (1, 0, 1.0, 1),
        (0, 0, inf, 32),
        (0, 0, 1.0, 16),
        (0, 4, 1.0, 12),
    ],
)
def test_credit(slots: int, others: int, since_s: float, calls: int) -> None:
    assert credit(slots, 32, others, since_s) == calls


def test_replicas_by_use() -> None:
    credits = {"a": 10, "b": 20, "c": 4, "d": 1}
    assert by_use({"a": 5, "b": 1, "c": 1, "d": 1}, credits) == ["b", "c", "a"]
    assert by_use({}, credits) == ["a", "b", "c", "d"]
    assert by_use({"a": 10}, {"a": 10}) == []


def test_calls_begin_apart() -> None:
    assert apart_s(0.6, 12) == pytest.approx(0.025)
    assert apart_s(0.0, 12) == 0
    assert apart_s(1800.0, 1) == 0.1
    # A full window ends a call more often than that, so the distance costs no throughput.
    assert 12 * apart_s(0.6, 12) < 0.6


@pytest.mark.parametrize(
    ("others", "since_s", "shared"), [(0, inf, False), (1, inf, True), (0, EXPECTED_S, True)]
)
def test_a_replica_is_shared_while_other_calls_are_expected(
    others: int, since_s: float, shared: bool
) -> None:
    assert is_shared(others, since_s) is shared
