"""Forecasts of the wait for a replica."""

from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.policies.capacity import Pace, retry_after_s


def test_wait_follows_the_pace_of_ends_while_others_wait() -> None:
    pace = Pace()
    for number in range(9):
        assert pace.wait_s(5) == 0.0
        pace.ended(2.0 * number, 3)
    assert pace.wait_s(5) == 10.0
    # A replica without waiting calls was not at its limit, for however long.
    pace.ended(100.0, 0)
    pace.ended(5000.0, 3)
    assert pace.wait_s(5) == 10.0


@given(st.floats(0, 1e9), st.floats(0, 1))
def test_both_clients_obey_the_answer(excess_s: float, chance: float) -> None:
    assert 1 <= retry_after_s(excess_s, chance) <= 60
