"""The fit of step costs to steps with known costs."""

from __future__ import annotations

import itertools
import math
from dataclasses import astuple
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft_engine.step_cost import attention_pairs
from weft_engine.step_fit import StepCosts, StepFit, StepMeter

TRUE = StepCosts(0.001, 0.0105, 1e-4, 1e-4, 8e-8, 4e-9)


def steps(count, costs=TRUE, noise=0.0, seed=1):
    """Steps of a busy engine: mostly decodes, and prompts in chunks."""
    rng = Random(seed)
    for _ in range(count):
        decode = rng.randrange(0, 60)
        prefill = rng.choice((0, 0, 0, 0, 30, 500, 2000))
        before = rng.randrange(0, 100_000) if prefill else 0
        context = before + decode * rng.randrange(200, 4000)
        pairs = attention_pairs(prefill, before)
        if prefill or decode:
            exact = costs.step(prefill, decode, context, pairs)
            yield prefill, decode, context, pairs, exact * (1 + rng.uniform(-noise, noise))


def fitted(*many):
    fit = StepFit()
    for one in itertools.chain(*many):
        fit.note(*one)
    return fit


@pytest.mark.parametrize("seed", range(3))
def test_step_costs_are_fitted_to_steps(seed):
    fit = fitted(steps(2500, noise=0.05, seed=seed))
    assert fit.costs.step_s + fit.costs.weights_s == pytest.approx(0.0115, rel=0.02)
    assert fit.costs.prefill_token_s == pytest.approx(1e-4, rel=0.02)
    assert fit.costs.context_token_s == pytest.approx(8e-8, rel=0.1)
    assert fit.costs.prefill_pair_s == pytest.approx(4e-9, rel=0.02)
    assert fit.costs.prefill_s(2000, 100_000) == pytest.approx(1.008, rel=0.02)
    assert fit.error < 0.04
    state = fit.state()
    assert (state["samples"], state["relative_error"]) == (fit.samples, fit.error)


def test_nothing_is_known_before_the_first_fit():
    fit = fitted(itertools.islice(steps(100), 31))
    assert fit.state() is None
    fit.note(0, 1, 100, 0, 0.01)
    assert fit.state() is not None


def test_the_cost_of_prefill_is_learned_after_many_short_prompts():
    """An engine that has answered short calls only must not seem to compute long prompts for
    nothing, and learns from the first long ones."""
    fit = fitted([(13, 0, 0, 91, 0.0115)] * 20, [(0, 1, 100, 0, 0.0115)] * 500)
    assert fit.state() is None
    for context in range(0, 20_480, 2048):
        pairs = attention_pairs(2048, context)
        fit.note(2048, 0, context, pairs, TRUE.step(2048, 0, context, pairs))
    assert fit.costs.prefill_token_s == pytest.approx(1e-4, rel=0.1)


def test_attention_costs_nothing_until_prompts_of_several_lengths_have_shown_it():
    """Steps of one kind do not tell a token's cost from that of its attention. Then long contexts
    must not seem to cost many times the truth."""
    fit = fitted([(2048, 0, 0, attention_pairs(2048, 0), 0.2)] * 40, [(0, 1, 100, 0, 0.01)] * 500)
    assert fit.costs.prefill_pair_s == 0
    assert fit.costs.prefill_token_s == pytest.approx(0.2 / 2048, rel=0.1)


def test_the_fit_follows_an_engine_that_becomes_slower():
    slow = StepCosts(*(2 * cost for cost in astuple(TRUE)))
    fit = fitted(steps(2000), steps(30_000, slow))
    assert fit.costs.prefill_token_s == pytest.approx(2e-4, rel=0.05)
    assert fit.costs.step_s + fit.costs.weights_s == pytest.approx(0.023, rel=0.05)


def test_steps_that_were_reported_together_do_not_spoil_the_fit():
    odd = [
        (*work, 1e-6 if number % 20 == 0 else s) for number, (*work, s) in enumerate(steps(3000))
    ]
    costs = fitted(odd).costs
    assert costs.prefill_token_s == pytest.approx(1e-4, rel=0.05)
    assert costs.step_s + costs.weights_s == pytest.approx(0.0115, rel=0.05)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10_000), st.integers(0, 300), st.integers(0, 10**7),
            st.integers(0, 10**9),
            st.sampled_from([0.0, 1e-300, 1e-6, 0.01, 1.0, 100.0]),
        ),
        max_size=40,
    )
)  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_costs_are_finite_and_never_negative(some):
    fit = fitted(some, [(500, 1, 0, 125_250, 0.01)] * 32)
    assert all(0 <= cost < math.inf for cost in astuple(fit.costs))
    assert 0 <= fit.error <= 1


def test_a_meter_measures_the_pace_and_the_costs():
    meter = StepMeter()
    for _ in range(40):
        meter.note({"a": 1000, "b": 1000}, 3, 500, 1_001_000, 0.2)
    assert meter.pace.token_s == pytest.approx(0.2 / 2001)
    assert meter.fit.costs.step(2000, 1, 500, 1_001_000) == pytest.approx(0.2)


def test_the_fit_follows_an_engine_that_becomes_much_faster():
    fast = StepCosts(*(cost / 10 for cost in astuple(TRUE)))
    fit = fitted(steps(2000), steps(30_000, fast))
    assert fit.costs.prefill_token_s == pytest.approx(1e-5, rel=0.05)
