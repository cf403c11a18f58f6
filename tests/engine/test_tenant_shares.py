"""Fair shares between tenants on vLLM's real scheduler, counted in steps of the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from engine_patches.channel import Command
from engine_patches.orders import ORDERS

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


def honest(threads: int = HONEST, **changes: Any) -> Tenant:
    return Tenant("honest", threads, lambda thread, call: f"agent-{thread}", **changes)


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


@pytest.mark.parametrize("policy", ["warm_plas", "plas", "mlfq", "atlas"])
def test_short_calls_with_pauses_are_not_kept_waiting_by_endless_ones_of_another_tenant(
    engine, policy
):
    """Both slots are the attacker's whenever the honest tenant thinks. Its calls give way again and
    again, not three times only."""
    alone, beside = honest(threads=1, pause=5), honest(threads=1, pause=5)
    play(engine(policy=policy, options=OPTIONS, max_num_seqs=2), [alone], 400)
    e = engine(policy=policy, options=OPTIONS, max_num_seqs=2)
    attacker = Tenant("attack", 2, ATTACKS["a fresh program per call"], tokens=1500)
    play(e, [beside, attacker], 600)
    assert mean(beside) <= 1.5 * mean(alone)
    most = max(a.displaced for a in map(e.scheduler.ledger.of, e.scheduler.requests) if a)
    assert most > e.scheduler.settings.max_displacements


@pytest.mark.parametrize("policy", ["warm_plas", "plas"])
def test_a_tenant_that_fills_the_cache_gives_room_to_one_that_runs_less(engine, policy):
    """Slots for all, and blocks for eight of the attacker's calls."""
    alone, beside = honest(), honest()
    play(engine(policy=policy, options=OPTIONS, max_num_seqs=64, blocks=100), [alone], 300)
    e = engine(policy=policy, options=OPTIONS, max_num_seqs=64, blocks=100)
    attacker = Tenant("attack", ATTACKING, ATTACKS["a fresh program per call"], tokens=160)
    play(e, [beside, attacker], 800)
    assert mean(beside) <= 2.5 * mean(alone)


@pytest.mark.parametrize("policy", sorted(ORDERS))
def test_weights_are_shares_of_the_slots(engine, policy):
    e = engine(policy=policy, options=OPTIONS, max_num_seqs=4)
    heavy = Tenant("heavy", 8, ATTACKS["24 programs"], weight=3.0, tokens=5)
    light = Tenant("light", 8, lambda thread, call: f"light-{thread}-{call}", tokens=9)
    slots = play(e, [heavy, light], 1500)
    assert slots["heavy"] / slots["light"] == pytest.approx(3.0, rel=0.15)


@pytest.mark.parametrize("policy", sorted(ORDERS))
def test_with_one_tenant_every_order_is_what_it_is_without_any(engine, policy):
    batches = []
    for tenant in ("", "lone"):
        e = engine(policy=policy, options=OPTIONS, max_num_seqs=3, blocks=40)
        played = Tenant(tenant, 9, lambda thread, call: f"p{thread % 5}", tokens=7)
        play(e, [played], 200)
        strip = len(tenant)
        batches.append([frozenset(name[strip:] for name in batch) for batch in e.batches])
        assert not e.scheduler.ledger.shares.contended
    assert batches[0] == batches[1]


@pytest.mark.parametrize("policy", sorted(ORDERS))
@pytest.mark.parametrize("decide_every", [1, 3])
def test_tenants_come_and_go_under_pressure_and_every_call_ends(engine, policy, decide_every):
    e = engine(
        policy=policy, options=OPTIONS, max_num_seqs=3, blocks=28, decide_every=decide_every
    )  # fmt: skip
    random = Random(policy)
    wanted: dict[str, int] = {}
    alive: list[str] = []
    for number in range(90):
        name = f"c{number}"
        wanted[name] = random.randint(1, 25)
        tenant = random.choice(["a", "a", "a", "b", "c" if number % 30 > 20 else "a"])
        # Calls of two sequences, too.
        call = f"{tenant}{number // 2}" if number % 12 < 2 else name
        e.add(
            name, call=call, program=f"{tenant}{number % 4}", tenant=tenant,
            weight=random.choice([0.5, 1.0, 4.0]), service=random.choice([0.0, 3.0, 50.0]),
            prompt=[random.randrange(400) for _ in range(random.randint(1, 120))],
            tokens=wanted[name], grammar=number % 9 == 0,
            extra={"weft_remaining": random.uniform(1, 90), "weft_budget": random.uniform(1, 90)},
        )  # fmt: skip
        alive.append(name)
        for _ in range(random.randrange(6)):
            e.step()
        if random.random() < 0.1:
            gone = alive.pop(random.randrange(len(alive)))
            wanted.pop(gone, None)
            e.abort(gone)
        if random.random() < 0.05:
            e.scheduler.obey(Command(reset_cache=True))
        assert e.scheduler.violations() == []
    e.run()
    assert {name: len(e.tokens[name]) for name in wanted} == wanted
    assert not e.scheduler.ledger.shares.contended


def test_inside_a_tenant_the_order_decides(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=2)
    for number, service in enumerate([900.0, 20.0, 0.0]):
        e.add(f"a{number}", tenant="a", service=service, tokens=3)
        e.add(f"b{number}", tenant="b", service=1e6, tokens=3)
    e.run()
    calls = [r.call for r in e.reports]
    assert [c for c in calls if c.startswith("a")] == ["a2", "a1", "a0"]
    assert [c for c in calls if c.startswith("b")] == ["b0", "b1", "b2"]
    assert {c[0] for c in calls[:2]} == {"a", "b"}
