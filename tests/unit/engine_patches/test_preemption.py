"""Choice of preempted requests, on queues with preset answers; tests/engine has real ones."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from weft_engine.call_table import CallTable
from weft_engine.orders import build_order
from weft_engine.preemption import Preemption
from weft_engine.tenant_queues import TenantQueues
from weft_engine.wire import CallContext

OPTIONS = {"queues": 4, "first_quantum_s": 2.0, "growth": 2.0}


class Ready:
    """Every request is ready."""

    refused = 0

    def __call__(self, name: str) -> bool:
        return True


class Engine:
    """An engine's handles. blocks: what each request needs or holds."""

    block_size = 16

    def __init__(self, slots: int, spare: int = 1000, policy: str = "plas") -> None:
        self.calls = CallTable(build_order(policy, OPTIONS))
        self.tenant_queues = TenantQueues(self.calls)
        self.displacing = Preemption(self, self.calls, self.tenant_queues, 3)
        self.requests: dict[str, Any] = {}
        self.running: list[Any] = []
        self.blocks: dict[str, int] = {}
        self.slots, self.spare = slots, spare
        self.asked: list[str] = []
        # Blocks that a claim takes beyond the lower bound.
        self.gap = 0

    def come(self, name: str, service_s: float = 0.0, blocks: int = 1, runs: bool = False) -> None:
        context = CallContext(name, name, service_s=service_s, tenant=name[0])
        self.requests[name] = SimpleNamespace(request_id=name, num_computed_tokens=0)
        self.blocks[name] = blocks
        self.calls.arrive(name, context, 0.0)
        if runs:
            self.calls.start(name, 0.0)
            self.running.append(self.requests[name])
            self.running.sort(key=lambda r: self.calls.rank(r.request_id))
        self.tenant_queues.invalidate(self.calls.moved)
        self.displacing.touch()

    def waiting_requests(self) -> Iterator[Any]:
        running = {r.request_id for r in self.running}
        return iter(
            sorted(
                (r for n, r in self.requests.items() if n not in running),
                key=lambda r: self.calls.rank(r.request_id),
            )
        )

    def readiness(self) -> Ready:
        return Ready()

    def free_slots(self) -> int:
        return self.slots - len(self.running)

    def spare_blocks(self) -> int:
        return self.spare

    def blocks_at_least(self, request: Any, exact_above: int) -> int:
        self.asked.append(request.request_id)
        return self.blocks[request.request_id]

    def blocks_needed(self, request: Any, exact_above: int) -> int:
        return self.blocks[request.request_id] + self.gap

    def blocks_held_alone(self, request: Any) -> int:
        return self.blocks[request.request_id]

    def waits_for_blocks(self) -> bool:
        return True

    def can_be_preempted(self, request: Any) -> bool:
        return True

    def prefix_cached(self) -> bool:
        return True


def test_claims_are_looked_up_until_one_cannot_be_met_and_not_again_until_something_happens():
    engine = Engine(slots=200, spare=0)
    engine.come("a bad one", 100.0, blocks=1, runs=True)
    for number in range(60):
        engine.come(f"a good {number}", 0.0, blocks=512, runs=True)
    for number in range(100):
        engine.come(f"a waiting {number}", 5.0, blocks=512)
    assert engine.displacing.decide(0.0) == []
    assert len(engine.asked) == 1
    assert engine.displacing.decide(0.0) == []
    assert len(engine.asked) == 1
    engine.spare = 511
    engine.displacing.touch()
    assert engine.displacing.decide(0.0) == ["a bad one"]


def test_a_decision_examines_a_limited_number_of_requests_that_are_not_ready(monkeypatch):
    asked = []

    class Refused(Ready):
        refused = 1

        def __call__(self, name: str) -> bool:
            asked.append(name)
            return False

    engine = Engine(slots=1)
    engine.come("a bad one", 100.0, runs=True)
    for number in range(1000):
        engine.come(f"a waiting {number}")
    monkeypatch.setattr(engine, "readiness", Refused)
    assert engine.displacing.decide(0.0) == []
    assert 0 < len(asked) <= 256


def test_no_call_is_preempted_for_a_claim_that_only_the_bound_would_meet():
    engine = Engine(slots=200, spare=0)
    engine.come("a bad one", 100.0, blocks=8, runs=True)
    engine.come("a waiting one", 5.0, blocks=8)
    engine.gap = 1
    assert engine.displacing.decide(0.0) == []
    engine.gap = 0
    engine.displacing.touch()
    assert engine.displacing.decide(0.0) == ["a bad one"]


@pytest.mark.parametrize("fairly", [False, True])
def test_preemptions_inside_a_tenant_are_limited_per_second(fairly):
    """Eight at once, then four per second; a decision looks up no more claims than it may meet."""
    engine = Engine(slots=60)
    for number in range(60):
        engine.come(f"a running {number}", 100.0, runs=True)
    for number in range(100):
        engine.come(f"a waiting {number}")

    def preempted(now: float) -> list[str]:
        engine.asked.clear()
        engine.displacing.touch()
        if fairly:
            return engine.displacing.decide_fairly(now)[0]
        return engine.displacing.decide(now)

    assert len(preempted(0.0)) == 8
    assert len(engine.asked) == 8
    assert preempted(0.05) == []
    assert engine.asked == []
    assert len(preempted(0.26)) == 1
    assert len(preempted(1.01)) == 3
    assert len(preempted(60.0)) == 8


def test_between_tenants_slots_count_and_not_attributes_of_calls():
    engine = Engine(slots=4)
    for number in range(4):
        engine.come(f"a{number}", 0.0, runs=True)
    for number in range(4):
        engine.come(f"b{number}", 1000.0)
    victims, coming = engine.displacing.decide_fairly(0.0)
    assert len(victims) == len(coming) == 2
    assert all(name[0] == "a" for name in victims)
    assert all(name[0] == "b" for name in coming)


def test_inside_a_tenant_the_order_preempts_regardless_of_other_tenants():
    engine = Engine(slots=2)
    engine.come("a0", 1000.0, runs=True)
    engine.come("b0", 1000.0, runs=True)
    engine.come("b1", 1000.0)
    engine.come("a1", 0.0)
    assert engine.displacing.decide_fairly(0.0) == (["a0"], ["a1"])


def test_a_tenant_that_runs_more_gives_blocks_or_none():
    engine = Engine(slots=9, spare=1, policy="resident")
    for number in range(3):
        engine.come(f"a{number}", blocks=4, runs=True)
    engine.come("b0", blocks=6)
    victims, coming = engine.displacing.decide_fairly(0.0)
    assert len(victims) == 2
    assert coming == ["b0"]
    engine.blocks["b0"] = 20
    engine.displacing.touch()
    assert engine.displacing.decide_fairly(0.0) == ([], [])


def test_calls_preempted_often_are_preempted_last():
    engine = Engine(slots=3)
    for number in range(3):
        engine.come(f"a{number}", runs=True)
    for number in range(2):
        call_state = engine.calls.of(f"a{number}")
        assert call_state is not None
        call_state.displaced = 3
    engine.come("b0")
    assert engine.displacing.decide_fairly(0.0) == (["a2"], ["b0"])
    preempted = engine.displacing.preempted_for(1)
    assert [r.request_id for r in preempted] == ["a2"]


def test_those_preempted_for_blocks_are_of_the_tenant_that_runs_most_at_that_point():
    engine = Engine(slots=9)
    for number in range(4):
        engine.come(f"a{number}", runs=True, blocks=3)
    for number in range(2):
        engine.come(f"b{number}", service_s=90.0, runs=True)
    engine.come("c0", service_s=90.0)

    def preempted(blocks: int) -> list[str]:
        return [r.request_id for r in engine.displacing.preempted_for(blocks)]

    assert preempted(0) == []
    assert preempted(3) == ["a3"]
    assert preempted(4) == preempted(6) == ["a3", "a2"]
    assert [name[0] for name in preempted(99)][2:] in (["a", "b", "a", "b"], ["b", "a", "b", "a"])
