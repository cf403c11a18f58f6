"""Costs of calls: by an engine's own fit, by a fit to calls, and for the mean replica."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.model import Program, ProgramKey, Shared
from weft_gateway.policies.costs import (
    Costs,
    EngineCosts,
    Predicted,
    StepCosts,
    cached_tokens,
)
from weft_gateway.policies.forecast import MIN_SAMPLES


def learned(*calls: tuple[str, str, int, int, int, float]) -> Costs:
    costs = Costs()
    for replica, kind, prompt, cached, output, service_s in calls:
        costs.learn("m", replica, kind, prompt, cached, output, service_s)
    return costs


def test_no_cost_without_a_report() -> None:
    assert Costs().predict("m", "k", 100, None) == Predicted()


def test_cost_is_the_mean_over_replicas() -> None:
    """A fast replica takes 1 ms per prompt token and 10 ms per output token, a slow one twice."""
    calls = [("fast", "k", 1000, 0, n, 1.0 + 0.01 * n) for n in (10, 20, 30, 40)]
    calls += [("slow", "k", 1000, 0, n, 2.0 + 0.02 * n) for n in (10, 20, 30, 40)]
    predicted = learned(*calls).predict("m", "k", 2000, None)
    assert predicted.prefill_s == pytest.approx(3.0)
    assert predicted.answer_s == pytest.approx(0.015 * 25)
    assert predicted.cost_s == predicted.prefill_s + predicted.answer_s


def test_answer_is_at_most_max_tokens() -> None:
    costs = learned(*[("r", "k", 1000, 0, n, 1.0 + 0.01 * n) for n in (100, 200, 300)])
    assert costs.predict("m", "k", 1000, 10).answer_s == pytest.approx(0.1)


def test_cached_tokens_cost_no_prefill() -> None:
    costs = learned(*[("r", "k", 1000, 900, n, 0.1 + 0.01 * n) for n in (10, 20, 30)])
    assert costs.predict("m", "k", 2000, None).prefill_s == pytest.approx(0.2)


def test_kind_learns_only_from_itself_once_it_has_samples() -> None:
    calls = [("r", "long", 10, 0, 900, 9.0)] * MIN_SAMPLES
    calls += [("r", "short", 10, 0, 10, 0.1)] * MIN_SAMPLES
    costs = learned(*calls)
    assert costs.predict("m", "short", 10, None).later_s == 0.1
    assert costs.predict("m", "long", 10, None).later_s == 9.0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 100_000), st.integers(0, 100_000), st.integers(0, 10_000),
            st.floats(0, 1e4),
        ),
        max_size=20,
    ),
    st.integers(0, 1_000_000),
)  # fmt: skip
def test_costs_are_never_negative(calls, prompt) -> None:
    predicted = learned(*[("r", "k", *call) for call in calls]).predict("m", "k", prompt, None)
    assert predicted.prefill_s >= 0
    assert predicted.answer_s >= 0
    assert predicted.later_s >= 0


A100 = StepCosts(0.001, 0.009, 0.0001, 0.0001, 1e-7, together=10)
L40 = StepCosts(0.001, 0.029, 0.0003, 0.0001, 2e-7, together=10)


def unequal() -> Costs:
    """Two engines that have reported their step costs; calls of 1,000 tokens, half of them cached,
    and 90 to 110 answer tokens.
    """
    costs = learned(*[("a", "k", 1000, 500, n, 1.0) for n in range(90, 111)])
    costs.set_engine("a", EngineCosts(A100))
    costs.set_engine("b", EngineCosts(L40))
    return costs


def on(costs: Costs, *names: str, prompt=1000, cached=None, work=None, max_tokens=None):
    shape = costs.shape("k", prompt, max_tokens)
    assert shape is not None
    return costs.by_replica("m", names, shape, cached or {}, work or {})


def test_cost_on_a_replica_is_by_its_engines_own_fit() -> None:
    found = on(unequal(), "a", "b")
    token_a, token_b = 0.01 + 1050 * 1e-7, 0.03 + 1050 * 2e-7
    assert found["a"].cost_s == pytest.approx(0.1 + 100 * token_a)
    assert found["b"].cost_s == pytest.approx(0.3 + 100 * token_b)
    assert found["a"].high_s == pytest.approx(0.1 + 109 * token_a)


def test_prefill_counts_uncached_tokens_only() -> None:
    found = on(unequal(), "a", "b", cached={"b": 1000})
    assert found["b"].cost_s == pytest.approx(100 * (0.03 + 1050 * 2e-7))
    assert (found["a"].cached_tokens, found["b"].cached_tokens) == (0, 1000)


def test_attention_makes_a_long_prompt_dearer_than_its_tokens() -> None:
    """Each token is compared with all before it, cached or not."""
    costs = unequal()
    costs.set_engine("a", EngineCosts(replace(A100, prefill_pair_s=4e-9)))
    costs.set_engine("b", EngineCosts(A100))
    whole = on(costs, "a", "b", prompt=100_000)
    assert whole["a"].cost_s - whole["b"].cost_s == pytest.approx(4e-9 * 100_000**2 / 2)
    rest = on(costs, "a", "b", prompt=100_000, cached={"a": 90_000, "b": 90_000})
    assert rest["a"].cost_s - rest["b"].cost_s == pytest.approx(4e-9 * 10_000 * 95_000)
    # Half of the usual prompt is cached.
    mean = costs.predict("m", "k", 100_000, None).prefill_s
    assert mean == pytest.approx(0.0001 * 50_000 + 2e-9 * 50_000 * 75_000)
    assert (costs.speed("a") or (0.0,))[0] == pytest.approx(0.0001 + 4e-9 * 750)


def test_open_calls_wait_at_the_throughput_of_the_batch() -> None:
    """Ten calls decode together, so a second of open calls takes less than a second."""
    found = on(unequal(), "a", work={"a": 2_000_000})["a"]
    alone = 0.05 + 100 * (0.01 + 1050 * 1e-7)
    busy = 0.05 + 100 * (0.001 + 1050 * 1e-7)
    assert (found.queue_s, found.mean_s) == (2.0, pytest.approx(alone))
    assert found.wait_s == pytest.approx(2.0 * busy / alone)


def test_calls_run_together_if_their_contexts_fit() -> None:
    costs = unequal()
    costs.set_engine("a", EngineCosts(A100, kv_tokens=1100))
    assert on(costs, "a", work={"a": 2_000_000})["a"].wait_s == pytest.approx(2.0)


def test_an_engine_without_a_fit_is_fitted_by_its_calls() -> None:
    costs = learned(*[("r", "k", 1000, 0, n, 1.0 + 0.01 * n) for n in (10, 20, 30, 40)])
    fitted = costs.speed("r")
    assert fitted == (pytest.approx(0.001), pytest.approx(0.01))
    costs.set_engine("r", EngineCosts(A100))
    prefill_s, token_s = costs.speed("r") or (0.0, 0.0)
    assert prefill_s == A100.prefill_token_s
    assert A100.token_s(1000) < token_s < A100.token_s(1050)
    costs.set_engine("r", None)
    assert costs.speed("r") == fitted
    costs.forget("r")
    assert costs.speed("r") is None


def test_an_unknown_replica_costs_the_mean_of_the_others() -> None:
    found = on(unequal(), "a", "b", "new")
    assert found["new"].cost_s == pytest.approx((found["a"].cost_s + found["b"].cost_s) / 2)
    assert on(unequal(), "new") is None


def test_budgets_use_the_mean_over_replicas() -> None:
    costs, found = unequal(), on(unequal(), "a", "b", cached={"a": 500, "b": 500})
    predicted = costs.predict("m", "k", 1000, None)
    assert predicted.cost_s == pytest.approx((found["a"].cost_s + found["b"].cost_s) / 2)


def test_replicas_of_the_program_have_its_context() -> None:
    key = ProgramKey("t", "p")
    new = Program(key, 0.0, home="a")
    later = Program(key, 0.0, home="a", last_replica="b", calls_closed=1)
    assert cached_tokens(None, 1000, 0.5) == cached_tokens(new, 1000, 0.5) == {}
    assert cached_tokens(later, 1000, 0.5) == {"a": 500, "b": 500}
    shared = Shared({"a": 700, "c": 100})
    assert cached_tokens(later, 1000, 0.5, shared) == {"a": 700, "b": 500, "c": 100}


def test_a_batch_hides_its_arithmetic_behind_the_weights_until_it_is_large() -> None:
    steps = StepCosts(0.001, 0.01, 0.0001, 0.0005, 0.0, together=10)
    assert steps.token_s(0) == pytest.approx(0.011)
    assert steps.shared_token_s(0) == pytest.approx(0.0011)
    assert replace(steps, together=40).shared_token_s(0) == pytest.approx(0.021 / 40)


# Prompt tokens, median answer tokens and their spread: stages of a text-to-SQL program.
STAGES = {"find": (306, 7, 0.3), "draft": (10_768, 696, 0.5), "revise": (6_897, 90, 1.15)}


@pytest.mark.parametrize("seed", [0, 1])
def test_half_and_nine_tenths_of_the_costs_are_within_their_quantiles(seed: int) -> None:
    """Long-tailed answers on unequal replicas, with noise and a partly cached prompt."""
    rng, costs, seen, p50, p90 = random.Random(seed), Costs(), 0, 0, 0
    for number in range(1500):
        stage, (prompt, tokens, spread) = rng.choice(list(STAGES.items()))
        cached = int(prompt * rng.choice([0.0, 0.5, 0.9]))
        output = max(int(tokens * rng.lognormvariate(0, spread)), 1)
        replica, slow = rng.choice([("a100", 1.0), ("a100", 1.0), ("a6000", 2.0)])
        service_s = (prompt - cached) * 0.0003 + output * 0.02
        service_s *= slow * rng.lognormvariate(0, 0.25)
        found = costs.predict("m", f"m\nsql\n{stage}", prompt, None)
        if number >= 100:
            seen += 1
            p50 += service_s <= found.cost_s
            p90 += service_s <= found.p90_s
        kind = f"m\nsql\n{stage}"
        costs.learn("m", replica, kind, prompt, cached, output, service_s, 1, found.fit_s)
    assert 0.45 <= p50 / seen <= 0.55
    assert 0.87 <= p90 / seen <= 0.93


def test_speed_is_that_of_the_engine_or_of_the_calls_of_all_models() -> None:
    calls = [("r", "k", 1000, 0, n, 1.0 + 0.01 * n) for n in (10, 20, 30, 40)]
    costs = learned(*calls)
    for n in (10, 20, 30, 40):
        costs.learn("other", "r", "k", 1000, 0, n, 3.0 + 0.03 * n)
    assert costs.speed("r") == pytest.approx((0.002, 0.02))
    assert costs.speed("unknown") is None
    costs.set_engine("r", EngineCosts(A100))
    # The usual call has a prompt of 1,000 tokens and an answer of 20 to 30.
    prompt_s, answer_s = costs.speed("r") or (0.0, 0.0)
    assert prompt_s == A100.prefill_token_s
    assert answer_s == pytest.approx(A100.token_s(1012.5), rel=1e-3)
    costs.forget("r")
    assert costs.speed("r") is None
