"""The share of short calls: limits of one step."""

from __future__ import annotations

import pytest
from weft_engine.short_calls import ShortCalls
from weft_engine.step_cost import StepCost


def slow_prefill() -> StepCost:
    """An engine whose prompt tokens take longer than its steps, such as a CPU."""
    cost = StepCost()
    cost.note(0.001, 0)
    for _ in range(50):
        cost.note(1.0, 50)
    return cost


@pytest.mark.parametrize("state", ["gone", "waiting", "running"])
def test_every_step_computes_a_part_of_other_prompts(state):
    """Otherwise an engine with nothing else to do would stand still."""
    short = ShortCalls(slow_prefill(), 8, 2048)
    short.queued("chat")
    if state != "waiting":
        short.started("chat")
    if state == "gone":
        short.left("chat")
    for _ in range(1000):
        limits = short.limits(None)
        if limits is None:
            break
        tokens = limits.left("agent", True, 2000)
        assert tokens > 0
        limits.take("agent", True, tokens, 2000)
