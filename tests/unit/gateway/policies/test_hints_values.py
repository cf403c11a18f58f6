"""Single values of hints."""

from __future__ import annotations

from typing import Any

import pytest
from weft_gateway.policies import hints_values as values


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (3, (3.0, False)), (2.5, (2.5, False)), (b"2.5", (2.5, False)), (-1, (0.0, True)),
        (11, (10.0, True)), (float("inf"), (10.0, True)), (10**400, (10.0, True)),
        (b"1e9", (10.0, True)),
    ],
)  # fmt: skip
def test_numbers_are_clamped(value: Any, wanted: tuple[float, bool]) -> None:
    assert values.number(value, 0.0, 10.0) == wanted


@pytest.mark.parametrize(
    "value", [True, "3", None, [], {}, float("nan"), b"nan", b"", b"\xff", b"1_0"]
)
def test_other_types_than_numbers_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="must be a number"):
        values.number(value, 0.0, 10.0)


@pytest.mark.parametrize("value", [0, -1, b"0", b"-1", b"-inf", -0.0])
def test_deadlines_of_0_or_less_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="must be more than 0"):
        values.deadline(value)
    assert values.deadline(1e9) == (86_400.0, True)


@pytest.mark.parametrize("value", [-1, 65, b"1e9", b"-inf"])
def test_stages_left_out_of_range_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="must be 0 to 64"):
        values.stages_left(value)
    assert [values.stages_left(each) for each in (0, b"64")] == [(0, False), (64, False)]


def test_vllms_priorities_are_inverted() -> None:
    assert values.sooner(2) == (2, False)
    assert values.later(2) == (-2, False)
    assert values.later(-99) == (8, True)
    with pytest.raises(ValueError, match="whole"):
        values.sooner(1.5)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(True, True), (False, False), (b"1", True), (b" Off ", False), (b"yes", True)],
)
def test_flags_are_parsed(value: Any, wanted: bool) -> None:
    assert values.flag(value) == (wanted, False)


@pytest.mark.parametrize("value", [1, "true", b"maybe", b"\xff", None])
def test_other_values_than_flags_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="true or false"):
        values.flag(value)
