"""Figures of a closed loop."""

from __future__ import annotations

import pytest
from weft_bench.agents.figures import Call, figures


def test_figures_count_the_same_sessions_and_all_calls():
    calls = [
        Call("a", 0.0, 1.0, 5.0, 100, 0, 10),
        Call("a", 6.0, 6.5, 8.0, 200, 100, 20, held_s=4.0),
        Call("b", 0.0, 2.0, 10.0, 100, 0, 10),
        Call("", 3.0, 3.25, 4.0, 500, 0, 64),
    ]
    found = figures(calls, {"a": (0.0, 8.0), "b": (0.0, 10.0)}, ["a"], 10.0)
    assert found["mean"] == found["p95"] == 8.0
    assert found["calls_per_s"] == pytest.approx(0.3)
    assert found["output_per_s"] == pytest.approx(4.0)
    # Chats have figures of their own.
    assert found["hit_rate"] == pytest.approx(0.25)
    assert found["chat_ttft_p95"] == pytest.approx(0.25)
    # Of the calls of `a`: 2 and 10 tokens a second.
    assert found["ttft_mean"] == pytest.approx(0.75)
    assert found["interactivity"] == pytest.approx(1 / 0.3)
    assert found["slow_tail"] == pytest.approx(1 / 0.46)
