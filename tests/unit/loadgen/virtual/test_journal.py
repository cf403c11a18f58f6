"""Shapes of simulated calls for the tuner."""

from __future__ import annotations

import pytest
from weft_bench.virtual.journal import trace_of, units
from weft_bench.virtual.records import CallRecord, Simulation
from weft_gateway.model.slo import CallBudget, Scope
from weft_gateway.tuning.replay.trace import Objective, Values

SPEED = {
    "slots": 8,
    "step_tokens": 2048,
    "kv_blocks": 1000,
    "block_tokens": 16,
    "costs": {
        "step_s": 0.01,
        "weights_s": 0.0,
        "prefill_token_s": 0.001,
        "decode_sequence_s": 0.002,
        "context_token_s": 0.0,
    },
}


def call(program: str, number: int, replica: str, begin_s: float, prompt: int, cached: int):
    return CallRecord(
        program, number, replica, begin_s, prompt, end_s=begin_s + 2, service_s=1.5,
        cached_tokens=cached, output_tokens=10,
    )  # fmt: skip


FOUND = Simulation(
    [
        call("p", 0, "a", 0.0, 100, 0),
        call("q", 0, "b", 1.0, 50, 0),
        call("p", 1, "a", 3.0, 150, 64),
        call("p", 2, "b", 6.0, 300, 0),
    ],
    [],
    8.0,
    budgets={
        "p/1": CallBudget(
            "", Scope.PROGRAM, 40.0, 40.0, 37.0, 9.0, 2.0, 1.0, 1.0, 4, False, path_s=10.0
        )
    },
    speeds={"a": SPEED, "b": SPEED},
)


def test_calls_have_the_journals_shapes():
    q, p = units(FOUND)
    assert (q.latency_s, p.latency_s) == (2.0, 8.0)
    first, second, third = p.calls
    assert (first.resumed, second.resumed, third.resumed) == (False, True, False)
    # The tokens that the program had sent and received before.
    assert (first.known, second.known, third.known) == (0, 110, 160)
    assert (second.deadline_s, second.cost_s, second.remaining, second.later_s) == (40, 2, 4, 2)
    assert first.deadline_s == 0
    assert (first.alone_s, second.alone_s) == (pytest.approx(0.22), pytest.approx(0.16))


def test_a_trace_can_be_replayed():
    trace = trace_of(FOUND, "work", "urgency", Values(alpha=0.0), Objective.LATENCY)
    trace.check()
    assert [one.name for one in trace.replicas] == ["a", "b"]
    assert trace.replicas[0].kv_tokens == 16_000
    assert len(trace.calls) == 4
    assert len(trace.counted) == 2


def test_replicas_without_fitted_costs_cannot_be_replayed():
    found = Simulation([], [], 0.0, speeds={"a": {**SPEED, "costs": None}})
    with pytest.raises(ValueError, match="a has not fitted"):
        trace_of(found, "work", "urgency", Values(alpha=0.0), Objective.LATENCY)
