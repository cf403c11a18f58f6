"""Fair shares between tenants on vLLM's real scheduler, counted in steps of the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

pytestmark = pytest.mark.engine

OPTIONS = {"first_quantum_s": 4.0, "growth": 2.0, "experiments": True}
HONEST, ATTACKING = 4, 24
# The program that a thread's call belongs to, by the thread and the number of its call.
ATTACKS: dict[str, Callable[[int, int], str]] = {
    "one program": lambda thread, call: "attack",
    "24 programs": lambda thread, call: f"attack-{thread}",
    "a fresh program per call": lambda thread, call: f"attack-{thread}-{call}",
}


@dataclass
class Tenant:
    """Threads that call again as soon as they are answered, or so many steps later. tokens: of an
    answer."""

    name: str
    threads: int
    program: Callable[[int, int], str]
    tokens: int = 8
    pause: int = 0
    weight: float = 1.0
    calls: list[int] = field(default_factory=list)
    due: dict[int, float] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)
    begun: dict[str, tuple[int, float, str]] = field(default_factory=dict)


def play(e: Any, tenants: list[Tenant], steps: int) -> dict[str, float]:
    """What a gateway would send, for so many steps. Slots that each tenant had, on average."""
    service: dict[str, float] = defaultdict(float)
    waiting: dict[str, float] = defaultdict(float)
    slots: dict[str, float] = defaultdict(float)
    for tenant in tenants:
        tenant.calls = [0] * tenant.threads
        tenant.due = dict.fromkeys(range(tenant.threads), 0.0)
    seen, begun = len(e.reports), e.now
    # Later than what others did before.
    end = e.now + steps
    for tenant in tenants:
        tenant.due = dict.fromkeys(tenant.due, begun)
    while e.now < end:
        for tenant in tenants:
            for thread in [t for t, at in tenant.due.items() if at <= e.now]:
                number = tenant.calls[thread]
                program = tenant.program(thread, number)
                name = f"{tenant.name}/{thread}/{number}"
                e.add(
                    name, program=program, tenant=tenant.name, weight=tenant.weight,
                    service=service[program], waiting=waiting[program],
                    arrival=float(thread), tokens=tenant.tokens,
                    prompt=[thread * 500 + n for n in range(24 + min(number, 20) * 8)],
                )  # fmt: skip
                tenant.begun[name] = (thread, e.now, program)
                tenant.calls[thread] += 1
                del tenant.due[thread]
        e.step()
        for name in e.batches[-1]:
            slots[name.partition("/")[0]] += 1.0
        for report in e.reports[seen:]:
            tenant = next(t for t in tenants if report.call in t.begun)
            thread, at, program = tenant.begun.pop(report.call)
            tenant.took.append(e.now - at)
            tenant.due[thread] = e.now + tenant.pause
            service[program] += report.service_s
            waiting[program] += report.waiting_s
        seen = len(e.reports)
        assert e.scheduler.violations() == []
    return {name: total / steps for name, total in slots.items()}


def honest(**changes: Any) -> Tenant:
    return Tenant("honest", HONEST, lambda thread, call: f"agent-{thread}", **changes)


def mean(tenant: Tenant) -> float:
    """Steps that a call took, but for the first ones."""
    took = tenant.took[HONEST:]
    return sum(took) / len(took)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("policy", ["warm_plas", "plas", "vtc", "fcfs"])
def test_an_attacking_tenant_slows_an_honest_one_to_its_share_and_no_further(
    engine, policy, attack
):
    """4 honest agents, 24 attacking threads, 4 slots. Half of the slots are the honest tenant's
    share, so that a call takes twice as long as alone."""
    alone, beside = honest(), honest()
    play(engine(policy=policy, options=OPTIONS, max_num_seqs=4), [alone], 400)
    e = engine(policy=policy, options=OPTIONS, max_num_seqs=4)
    attacker = Tenant("attack", ATTACKING, ATTACKS[attack])
    slots = play(e, [beside, attacker], 800)
    assert mean(beside) <= 2.5 * mean(alone)
    assert slots["honest"] == pytest.approx(2.0, abs=0.25)
    assert slots["honest"] + slots["attack"] > 3.5, "no slot is left empty"
