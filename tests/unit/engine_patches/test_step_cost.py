"""Costs of steps and of prefill, learned from steps with known costs."""

import pytest
from weft_engine.step_cost import PrefillPace, StepCost


def test_nothing_is_known_before_the_first_step():
    cost = StepCost()
    cost.note(0.0, 0)
    assert (cost.base_s, cost.token_s, cost.prefill_share(100)) == (0.0, 0.0, 0.0)


def test_steps_with_and_without_prefill_are_distinguished():
    cost = StepCost()
    for tokens in (0, 2000, 0, 50, 0, 700):
        cost.note(0.01 + tokens * 1e-4, tokens)
    assert cost.base_s == pytest.approx(0.01)
    assert cost.token_s == pytest.approx(1e-4)
    assert cost.prefill_share(100) == pytest.approx(0.5)
    assert cost.prefill_share(0) == 0.0


def test_before_a_step_without_prefill_has_run_all_time_is_that_of_prefill():
    cost = StepCost()
    cost.note(0.2, 1000)
    assert cost.prefill_share(10) == 1.0


def test_one_slow_step_does_not_make_steps_without_prefill_slow():
    cost = StepCost()
    cost.note(0.01, 0)
    cost.note(5.0, 0)
    assert cost.base_s <= 0.012


def test_the_estimate_follows_an_engine_that_becomes_slower():
    cost = StepCost()
    for factor in [1.0] * 20 + [3.0] * 100:
        cost.note(0.01 * factor, 0)
        cost.note((0.01 + 0.1) * factor, 1000)
    assert cost.base_s == pytest.approx(0.03, rel=0.01)
    assert cost.token_s == pytest.approx(3e-4, rel=0.01)


def test_the_shortest_step_stands_for_a_step_without_prefill_until_one_has_run():
    cost = StepCost()
    for tokens in (1000, 20, 1000):
        cost.note(0.01 + tokens * 1e-4, tokens)
    assert (cost.base_s, cost.measured) == (pytest.approx(0.012), False)
    cost.note(0.01, 0)
    assert (cost.base_s, cost.measured) == (0.01, True)


def test_the_pace_is_that_of_steps_that_prefill():
    pace = PrefillPace()
    pace.note(255, 1, 1.0)
    pace.note(400, 300, 1.0)
    pace.note(2000, 1, 0.0)
    assert pace.token_s == 0.0
    pace.note(2000, 10, 0.2)
    assert pace.token_s == pytest.approx(1e-4)
    pace.note(2000, 10, 0.4)
    assert pace.token_s == pytest.approx(1.1e-4)
