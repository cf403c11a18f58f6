"""Forecasts: remaining calls with censoring, costs, answer lengths."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.policies.forecast import MIN_SAMPLES, Costs, PathLengths, Predicted


def play(lengths: PathLengths, kind: str, calls: int, *, ended: bool = True) -> None:
    for position in range(1, calls):
        lengths.went_on(kind, position)
    if ended:
        lengths.ended(kind, calls)


def test_remaining_calls_are_the_median() -> None:
    lengths = PathLengths()
    for calls in (3, 5, 5, 5, 5, 5, 5, 9):
        play(lengths, "k", calls)
    assert [lengths.remaining("k", at) for at in (1, 4, 5, 9)] == [4, 1, 0, 0]


def test_nothing_is_known_at_first() -> None:
    assert PathLengths().remaining("k", 1) == 0


def test_running_units_count_at_the_calls_that_they_have_passed() -> None:
    """Learning from ended units only would forget the long ones."""
    lengths = PathLengths()
    for _ in range(10):
        play(lengths, "k", 2)
    assert lengths.remaining("k", 1) == 1
    for _ in range(30):
        play(lengths, "k", 20, ended=False)
    assert lengths.remaining("k", 1) >= 18


def test_rare_kind_uses_all_programs() -> None:
    lengths = PathLengths()
    for _ in range(MIN_SAMPLES):
        play(lengths, "common", 6)
    play(lengths, "rare", 1)
    assert lengths.remaining("rare", 1) == lengths.remaining("new", 1) == 5


@given(st.lists(st.tuples(st.integers(1, 600), st.booleans()), max_size=20), st.integers(1, 600))
def test_remaining_calls_are_bounded(units, position) -> None:
    lengths = PathLengths()
    for calls, ended in units:
        play(lengths, "k", calls, ended=ended)
    longest = max((calls for calls, _ in units), default=1)
    assert 0 <= lengths.remaining("k", position) <= max(longest - position, 0)


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
        costs.learn("m", replica, kind, prompt, cached, output, service_s, found.fit_s)
    assert 0.45 <= p50 / seen <= 0.55
    assert 0.87 <= p90 / seen <= 0.93


def test_nine_tenths_of_the_remaining_paths_are_within_their_quantile() -> None:
    rng, lengths, seen, covered = random.Random(1), PathLengths(), 0, 0
    running: list[tuple[int, list[tuple[int, int]]]] = []
    for number in range(1200):
        running.append((max(round(rng.lognormvariate(2.0, 0.6)), 1), []))
        for calls, forecasts in running:
            at = len(forecasts) + 1
            forecasts.append((at, lengths.quantiles("k", at)[1]))
            if at < calls:
                lengths.went_on("k", at)
                continue
            lengths.ended("k", at)
            seen += len(forecasts) if number > 200 else 0
            covered += sum(calls - at <= p90 for at, p90 in forecasts if number > 200)
        running = [unit for unit in running if len(unit[1]) < unit[0]]
    assert 0.87 <= covered / seen <= 0.95


def test_forecast_of_a_path_follows_new_units() -> None:
    """Forecasts are kept until the kind has grown by a sixteenth."""
    lengths = PathLengths()
    for _ in range(100):
        play(lengths, "k", 3)
    assert lengths.quantiles("k", 1) == (2, 2)
    for _ in range(400):
        play(lengths, "k", 9)
    assert lengths.quantiles("k", 1) == (8, 8)
