"""Deadlines and predicted costs of simulated calls."""

from __future__ import annotations

from random import Random
from typing import Any

from weft_bench.virtual.front import HEALTH_INTERVAL_S, Front
from weft_bench.workloads.schema import Part
from weft_engine.wire import CallReport

HEAD = (Part("stage", 64, "system"), Part("question", 36, "user"))
FAST = {"step_s": 0.01, "weights_s": 0.0, "prefill_token_s": 1e-4}
SLOW = {"step_s": 0.04, "weights_s": 0.0, "prefill_token_s": 4e-4}


def state(costs: dict[str, float]) -> dict[str, Any]:
    rest = {"decode_sequence_s": 0.0, "context_token_s": 0.0}
    return {"costs": {**costs, **rest}, "slots": 8, "kv_blocks": 1000, "block_tokens": 16}


def front(balancer: str = "work", **changes: Any) -> Front:
    return Front(("a", "b"), balancer, Random(0), **changes)


def played(gate: Front, count: int, now: float = 0.0, output: int = 10) -> None:
    """Play programs of one call, one after another."""
    for number in range(count):
        program = f"played-{now}-{number}"
        gate.place(program, "0", f"{program}/0", 100, now, parts=HEAD)
        gate.close(CallReport(f"{program}/0", 1.0, 0.0, 0, 100, 0, output), now + 1)
        gate.end(program, now + 1)


def test_a_program_with_a_deadline_has_budgets_and_others_have_none():
    gate = front("round_robin", deadlines={"p": 10.0})
    _, plain = gate.place("q", "0", "q/0", 100, 5.0, parts=HEAD)
    assert (plain.budget_s, plain.left_s, plain.deadline_s) == (None, None, None)
    _, first = gate.place("p", "0", "p/0", 100, 5.0, parts=HEAD)
    assert (first.left_s, first.deadline_s) == (10.0, 10.0)
    gate.close(CallReport("p/0", 1.0, 0.0, 0, 100, 0, 10), 9.0)
    _, second = gate.place("p", "1", "p/1", 100, 9.0, parts=HEAD)
    assert (second.left_s, second.budget_s, second.deadline_s) == (6.0, 6.0, 10.0)


def test_a_prefill_has_no_budget():
    gate = front("round_robin", deadlines={"p": 10.0})
    _, context = gate.place("p", "prefill", "p/prefill", 100, 5.0)
    assert context.budget_s is None


def test_work_goes_to_the_faster_engine_and_returns_to_nothing():
    gate = front(states={"a": lambda: state(SLOW), "b": lambda: state(FAST)}, alpha=1.0)
    played(gate, 2)
    assert gate.place("p", "0", "p/0", 100, 9.0, parts=HEAD)[0] == "b"
    assert set(gate.table.work()) == {"b"}
    gate.close(CallReport("p/0", 1.0, 0.0, 0, 100, 0, 10), 10.0)
    assert not gate.table.work()


def test_engines_are_asked_as_often_as_by_the_health_check():
    asked = []

    def told() -> dict[str, Any]:
        asked.append(1)
        return state(FAST)

    gate = front(states={"a": told})
    for now in (0.0, HEALTH_INTERVAL_S / 2, HEALTH_INTERVAL_S, HEALTH_INTERVAL_S * 1.5):
        played(gate, 1, now)
    assert len(asked) == 2


def test_programs_that_cannot_meet_their_deadline_are_refused_at_their_first_call():
    ends = {f"played-0.0-{i}": 10.0 for i in range(20)}
    gate = front(
        "round_robin",
        deadlines={**ends, "late": 0.5, "met": 100.0},
        states={name: lambda: state(FAST) for name in "ab"},
        refuse=True,
    )
    played(gate, 20, output=100)
    assert not gate.refused
    gate.place("late", "0", "late/0", 100, 9.0, parts=HEAD)
    gate.place("met", "0", "met/0", 100, 9.0, parts=HEAD)
    assert gate.refused == {"late"}
    assert sum(gate.table.in_flight().values()) == 1
    gate.close(CallReport("met/0", 1.0, 0.0, 0, 100, 0, 10), 10.0)
    gate.end("met", 10.0)
    assert not gate.violations()
