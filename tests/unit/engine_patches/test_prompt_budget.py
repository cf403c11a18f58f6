"""The budget of prompt tokens of one step: the least of several limits."""

from __future__ import annotations

from typing import Any

import pytest
from weft_engine.prefill_limits import PrefillPacing, Step
from weft_engine.prompt_budget import SLOWER, PromptBudget, PromptBudgets
from weft_engine.short_calls import ShortCalls
from weft_engine.step_cost import StepCost
from weft_engine.step_fit import StepCosts, StepMeter
from weft_engine.tenant_shares import TenantShares

TOKENS = 2048
# Seconds of a step without prompts, of a prompt token, and of a pair of attention.
REST_S, TOKEN_S, PAIR_S = 0.012, 1e-4, 1e-9


class Engine:
    """An engine that knows the costs of its steps."""

    def __init__(self, token_s: float = TOKEN_S) -> None:
        self.shares, self.meter = TenantShares(), StepMeter()
        self.meter.fit.costs = StepCosts(REST_S, 0.0, token_s, 0.0, 0.0, PAIR_S)
        self.short = ShortCalls(self.shares.cost, 8, TOKENS)
        self.budgets = PromptBudgets(
            self.shares.cost, self.meter, self.short, PrefillPacing(self.shares, 16)
        )

    def next(self, decoding: int, paced: bool = True, **changes: Any) -> PromptBudget | None:
        step = Step({"agent": 100_000}, decoding, 1, TOKENS - decoding, TOKENS, 10**6)
        return self.budgets.next(step._replace(**changes), paced)


def left(budget: PromptBudget | None, context: int = 0, sequence: str = "agent") -> int:
    assert budget is not None
    return budget.left(sequence, True, 100_000, context)


@pytest.mark.parametrize("context", [0, 20_000, 100_000])
def test_a_prompt_beside_answers_takes_at_most_15_percent_longer(context):
    tokens = left(Engine().next(decoding=16), context)
    prompt_s = tokens * (TOKEN_S + PAIR_S * (context + tokens / 2))
    assert REST_S / prompt_s == pytest.approx(SLOWER, rel=0.01)


@pytest.mark.parametrize(("decoding", "paced"), [(0, True), (16, False)])
def test_without_answers_and_in_orders_that_do_not_pace_the_step_is_that_of_vllm(decoding, paced):
    assert Engine().next(decoding, paced) is None


def test_each_answer_gets_its_token_before_prompts_do():
    engine = Engine(token_s=1e-9)
    assert left(engine.next(decoding=500)) == TOKENS - 500
    engine.meter.fit.costs = None
    assert left(engine.next(decoding=500)) == TOKENS - 500


def test_prompts_share_one_budget():
    engine = Engine()
    budget = engine.next(decoding=16)
    tokens = left(budget)
    budget.take("agent", True, tokens - 100, 100_000, 0)
    assert left(budget, sequence="other") == pytest.approx(100, abs=2)
    assert not budget.spent
    budget.take("other", True, left(budget, sequence="other"), 100_000, 0)
    assert budget.spent
    assert left(budget, sequence="third") == 0


@pytest.mark.parametrize("token_s", [TOKEN_S, 1e-9])
def test_prompts_that_run_leave_half_of_the_step_to_a_short_call_that_waits(token_s):
    engine = Engine(token_s)
    alone = left(engine.next(decoding=16))
    engine.short.queued("chat")
    budget = engine.next(decoding=16)
    assert left(budget) == pytest.approx(alone / 2, rel=0.01)
    budget.take("agent", True, left(budget), 100_000, 0)
    assert not budget.spent
    assert left(budget) == 0
    assert left(budget, sequence="chat") == pytest.approx(alone / 2, rel=0.01)


def test_a_step_is_limited_while_a_short_call_may_come():
    engine = Engine()
    engine.short.queued("chat")
    engine.short.started("chat")
    engine.short.left("chat")
    assert left(engine.next(decoding=0)) == left(Engine().next(decoding=1))
    engine.short.ran(11.0)
    assert engine.next(decoding=0) is None


def test_prompts_of_others_delay_short_calls_by_a_tenth_of_a_second_and_then_little():
    engine = Engine(token_s=1e-3)
    engine.short.queued("chat")
    engine.short.started("chat")
    budget = engine.next(decoding=2)
    tokens = left(budget)
    assert tokens == pytest.approx(REST_S / SLOWER / 1e-3, abs=1)
    for _ in range(3):
        budget.take("agent", True, tokens, 100_000, 0)
        engine.short.delayed(budget.delay_s, budget.limited)
        budget = engine.next(decoding=2)
    # Another short call is not limited by this.
    assert left(budget, sequence="chat") > left(budget)
    assert left(budget) < tokens / 2


def test_a_small_prompt_does_not_wait_for_short_calls():
    engine = Engine(token_s=1e-3)
    engine.short.queued("chat")
    engine.short.started("chat")
    engine.short.delayed(0.1, True)
    budget = engine.next(decoding=2)
    small = budget.left("branch", False, 100, 0)
    assert small == budget.left("chat", False, 100, 0) > left(budget)


def test_prompts_that_the_weights_hide_delay_no_short_call():
    engine = Engine()
    engine.meter.fit.costs = StepCosts(0.001, 0.01, TOKEN_S, TOKEN_S, 0.0)
    engine.short.queued("chat")
    engine.short.started("chat")
    for _ in range(100):
        budget = engine.next(decoding=10)
        assert left(budget) >= 90
        budget.take("agent", True, 90, 100_000, 0)
        assert budget.delay_s == pytest.approx(0.0)
        engine.short.delayed(budget.delay_s, budget.limited)


@pytest.mark.parametrize("state", ["gone", "waiting", "running"])
def test_every_step_computes_a_part_of_a_prompt(state):
    """Otherwise an engine with nothing else to do would stand still."""
    engine = Engine(token_s=0.1)
    engine.short.queued("chat")
    if state != "waiting":
        engine.short.started("chat")
    if state == "gone":
        engine.short.left("chat")
    for _ in range(1000):
        budget = engine.next(decoding=0)
        tokens = left(budget)
        assert tokens > 0
        budget.take("agent", True, tokens, 100_000, 0)
        engine.short.delayed(budget.delay_s, budget.limited)


def test_a_waiting_call_without_tokens_is_passed_over_a_limited_number_of_times():
    engine = Engine()
    for name, tenant in (("agent", "a"), ("other", "b")):
        engine.shares.arrive(name, tenant, 1.0)
        engine.shares.start(name)
    engine.shares.arrive("waits", "a", 1.0)
    for cost in (engine.shares.cost,):
        cost.note(REST_S, 0)
        cost.note(REST_S + 100 * TOKEN_S, 100)
    budget = engine.next(decoding=1, free=0)
    assert sum(budget.passes_over("waits", 300) for _ in range(100)) == 32


def test_before_the_first_fit_the_mean_costs_of_steps_count():
    engine = Engine()
    engine.meter.fit.costs = None
    cost: StepCost = engine.shares.cost
    cost.note(REST_S, 0)
    cost.note(REST_S + 1000 * TOKEN_S, 1000)
    assert left(engine.next(decoding=1)) == pytest.approx(REST_S / SLOWER / TOKEN_S, rel=0.01)
