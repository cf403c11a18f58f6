"""Token steps."""

from __future__ import annotations

import pytest
from weft_bench.planner.token_steps import Worker, decode_usage, delay, token_steps, usage


def test_usage_is_that_of_the_paper() -> None:
    assert decode_usage(4) == 10
    # a (o u_p + o (o + 1) / 2) with a = 1 / M
    assert usage(100, 4, 1 / 1000) == pytest.approx(0.41)
    assert delay(4, 1 / 1000, 1000) == pytest.approx(4)


def test_dependent_call_starts_after_the_delay() -> None:
    worker = Worker(1000)
    alone = usage(100, 4, worker.rate)

    def prefill(before: int | None, after: int) -> float:
        return 100.0

    steps = token_steps([[0, 1]], [4, 4], [(), (0,)], prefill, [worker])
    assert steps == pytest.approx(alone + 4 + alone)
    # A third call fills the delay.
    between = token_steps([[0, 2, 1]], [4, 4, 4], [(), (0,), ()], prefill, [worker])
    assert between == pytest.approx(steps)


def test_dependencies_hold_between_workers() -> None:
    worker = Worker(1000, alpha=1.0)
    steps = token_steps([[0], [1]], [1, 1], [(), (0,)], lambda before, after: 0.0, [worker] * 2)
    assert steps == 1 + 1000 + 1


def test_orders_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        token_steps([[1, 0]], [1, 1], [(), (0,)], lambda before, after: 0.0, [Worker(10)])
