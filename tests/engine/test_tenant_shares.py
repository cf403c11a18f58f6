"""Fair shares between tenants on vLLM's real scheduler, counted in steps of the engine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

import pytest
from weft_engine.engine_link import Command
from weft_engine.orders import ORDERS

pytestmark = pytest.mark.engine

OPTIONS = {"first_quantum_s": 4.0, "growth": 2.0}
HONEST, ATTACKING = 4, 24
# The program that a thread's call belongs to, by the thread and the number of its call.
ATTACKS: dict[str, Callable[[int, int], str]] = {
    "one program": lambda thread, call: "attack",
    "24 programs": lambda thread, call: f"attack-{thread}",
    "a fresh program per call": lambda thread, call: f"attack-{thread}-{call}",
}


@dataclass
class Tenant:
    """Threads that call again `pause` steps after their answer. tokens: of an answer."""

    name: str
    threads: int
    program: Callable[[int, int], str]
    tokens: int = 8
    pause: int = 0
    weight: float = 1.0
    prompt: Callable[[int, int], list[int]] | None = None
    calls: list[int] = field(default_factory=list)
    due: dict[int, float] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)
    begun: dict[str, tuple[int, float, str]] = field(default_factory=dict)


def play(e: Any, tenants: list[Tenant], steps: int) -> dict[str, float]:
    """Send the tenants' calls for `steps` steps, as a gateway would. Returns the average number of
    slots of each tenant."""
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
                prompt = tenant.prompt and tenant.prompt(thread, number)
                e.add(
                    name, program=program, tenant=tenant.name, weight=tenant.weight,
                    service=service[program], waiting=waiting[program],
                    arrival=float(thread), tokens=tenant.tokens,
                    prompt=prompt or [thread * 500 + n for n in range(24 + min(number, 20) * 8)],
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


def unseen(thread: int, call: int) -> list[int]:
    """A long prompt that begins like no other one."""
    return [thread * 100 + call % 100, call // 100, *range(1998)]


def mean(tenant: Tenant) -> float:
    """Return the mean seconds of a call without the first ones; infinite if no other call ended."""
    took = tenant.took[HONEST:]
    return sum(took) / len(took) if took else inf


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("policy", ["resident", "plas", "fcfs"])
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


@pytest.mark.parametrize("policy", ["resident", "plas", "mlfq", "atlas"])
def test_short_calls_with_pauses_are_not_kept_waiting_by_endless_ones_of_another_tenant(
    engine, policy
):
    """The attacker has both slots whenever the honest tenant pauses. Its calls are preempted again
    and again, more than three times."""
    alone, beside = honest(threads=1, pause=5), honest(threads=1, pause=5)
    play(engine(policy=policy, options=OPTIONS, max_num_seqs=2), [alone], 400)
    e = engine(policy=policy, options=OPTIONS, max_num_seqs=2)
    attacker = Tenant("attack", 2, ATTACKS["a fresh program per call"], tokens=1500)
    play(e, [beside, attacker], 600)
    assert mean(beside) <= 1.5 * mean(alone)
    most = max(a.displaced for a in map(e.scheduler.calls.of, e.scheduler.requests) if a)
    assert most > e.scheduler.settings.max_displacements


@pytest.mark.parametrize("policy", ["resident", "plas"])
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
        assert not e.scheduler.calls.shares.contended
    assert batches[0] == batches[1]


@pytest.mark.parametrize("policy", sorted(ORDERS))
def test_tenants_come_and_go_under_pressure_and_every_call_ends(engine, policy):
    e = engine(policy=policy, options=OPTIONS, max_num_seqs=3, blocks=28)
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
            extra={"weft_budget": random.uniform(1, 90)},
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
    assert not e.scheduler.calls.shares.contended


@pytest.mark.parametrize("policy", ["plas", "fcfs"])
@pytest.mark.parametrize("blocks", [11, 30, 40])
def test_when_blocks_run_out_the_tenant_that_runs_most_loses_a_call(engine, policy, blocks):
    """Nothing waits, and the only call of tenant b stands worst in the order of all calls. All
    calls need a block in the same step; with 11 blocks several of them are preempted in it."""
    e = engine(policy=policy, options=OPTIONS, max_num_seqs=16, blocks=blocks)
    for number in range(7):
        e.add(f"a{number}", tenant="a", tokens=100)
    e.add("b", tenant="b", service=1e6, arrival=9.0, tokens=100)
    e.run()
    preemptions = {r.call: r.preemptions for r in e.reports}
    assert sum(preemptions.values()) > 0
    assert preemptions["b"] == 0


@pytest.mark.parametrize(("weight", "expected"), [(1.0, {"a": 4}), (3.0, {"a": 3, "b": 1})])
def test_calls_that_are_preempted_in_one_step_are_chosen_one_after_another_by_shares(
    engine, weight, expected
):
    """Ten calls run with a block each, a further one waits for a slot, and two blocks are free when
    each of the ten needs another one: six go on. The two calls of tenant b stand worst. With a
    weight of 3 tenant a runs as many for its weight as tenant b when one of its calls has gone."""
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=10, blocks=13)
    for number in range(7):
        e.add(f"a{number}", tenant="a", weight=weight, tokens=40)
    for number in range(2):
        e.add(f"b{number}", tenant="b", service=1e6, tokens=40)
    e.add("c", tenant="c", tokens=40)
    e.step()
    e.add("a9", tenant="a", weight=weight, service=1e6, tokens=40)
    while not (lost := {r.request_id for r in e.scheduler.requests.values() if r.num_preemptions}):
        assert len(e.scheduler.running) == 10
        e.step()
    assert Counter(name[0] for name in lost) == expected
    e.run()


@pytest.mark.parametrize("step_tokens", [64, 2048])
def test_whenever_vllm_preempts_for_blocks_it_was_known_that_they_may_run_out(engine, step_tokens):
    e = engine(policy="fcfs", options=OPTIONS, max_num_seqs=6, blocks=40, step_tokens=step_tokens)
    random = Random(step_tokens)
    preempted, sure = 0, 0
    for number in range(80):
        prompt = [random.randrange(400) for _ in range(random.randint(1, 200))]
        e.add(f"c{number}", prompt=prompt, tokens=random.randint(1, 60))
        for _ in range(random.randint(1, 9)):
            lacking = e.scheduler.blocks_lacking()
            before = sum(r.num_preemptions for r in e.scheduler.running)
            names = {r.request_id for r in e.scheduler.running}
            e.step()
            after = sum(r.num_preemptions for r in e.scheduler.requests.values()
                        if r.request_id in names)  # fmt: skip
            if after > before:
                preempted += 1
                assert lacking > 0
            sure += bool(names) and lacking <= 0
    assert preempted > 5
    assert sure > 20, "blocks are said to be short only where they are"
    e.run()


def test_a_tenants_ready_calls_run_although_many_before_them_wait_for_a_grammar(engine):
    """200 calls of tenant b have no grammar yet. Its 12 calls behind them come before the last ones
    of tenant a, whose calls fill both slots all the time."""
    e = engine(policy="fcfs", options=OPTIONS, max_num_seqs=2)
    for number in range(200):
        e.add(f"b{number}", tenant="b", tokens=2, grammar=True)
        request = e.scheduler.requests[f"b{number}"]
        request.structured_output_request.grammar = None
    for number in range(40):
        e.add(f"a{number}", tenant="a", tokens=4)
    for number in range(12):
        e.add(f"c{number}", tenant="b", tokens=4)
    while not all(f"c{number}" in e.tokens for number in range(12)):
        e.step()
        assert e.scheduler.violations() == []
        assert any(f"a{n}" in e.scheduler.requests for n in range(40)), "b had no turns"
    for name in [n for n in e.scheduler.requests if n.startswith("b")]:
        e.abort(name)
    e.run()


@pytest.mark.parametrize(("slots", "attacking"), [(16, 1), (16, 4), (4, 4), (4, 24)])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("policy", ["resident", "plas"])
def test_long_prompts_of_one_tenant_slow_short_calls_of_another_to_their_share(
    engine, policy, threads, slots, attacking
):
    """A step of 2,000 prompt tokens takes 32 times as long as one without, and the attacker has
    such a prompt in the engine all the time. With 16 slots, no call waits for one. With 4, the
    honest tenant fills all of them; a slot that the attacker takes costs it time twice, since the
    prompt slows its steps too."""
    alone, beside = honest(threads, tokens=32), honest(threads, tokens=32)
    attacker = Tenant("attack", attacking, ATTACKS["a fresh program per call"], tokens=1,
                      prompt=unseen)  # fmt: skip
    for tenants in ([alone], [beside, attacker]):
        e = engine(policy=policy, options=OPTIONS, max_num_seqs=slots, blocks=1200)
        e.token_s = 1 / 64
        play(e, tenants, 1500)
    assert mean(beside) <= 2.5 * mean(alone)
    # Half of the engine's time computes a prompt in 64 seconds. Prompts that are still in the
    # engine at the end count, since orders by attained service turn between 24 programs.
    assert len(attacker.took) + len(attacker.begun) >= 13, "the rest is the attacker's"


@pytest.mark.parametrize(("tokens", "most"), [(1, 6.0), (2, 2.5), (4, 2.5)])
def test_long_prompts_of_one_tenant_do_not_delay_the_shortest_calls_of_another(
    engine, tokens, most
):
    """Between two calls, the honest tenant has none in the engine for five seconds. A step of 33
    seconds must not start meanwhile. With one token per answer, no step without prefill runs, so
    its duration is only estimated."""
    alone, beside = honest(1, tokens=tokens, pause=5), honest(1, tokens=tokens, pause=5)
    attacker = Tenant("attack", 4, ATTACKS["a fresh program per call"], tokens=1, prompt=unseen)
    for tenants in ([alone], [beside, attacker]):
        e = engine(policy="plas", options=OPTIONS, max_num_seqs=16, blocks=1200)
        e.token_s = 1 / 64
        play(e, tenants, 1000)
    assert mean(beside) <= most * mean(alone)


def test_prompts_of_a_lone_tenant_and_of_equal_tenants_use_the_whole_step(engine):
    for names in (["a"], ["a", "b"]):
        e = engine(policy="plas", options=OPTIONS, max_num_seqs=16, blocks=1200)
        e.token_s = 1 / 64
        e.add("first", tenant="a", tokens=9)
        e.run()
        for number in range(24):
            e.add(f"c{number}", tenant=names[number % len(names)], prompt=unseen(number, 0))
        e.run()
        # Prompts, as many steps as they fill, and less than one more where one tenant ends first.
        assert e.now <= 10 + 24 * 2000 / 64 + 24 + 32


def test_a_tenant_is_charged_for_the_prompts_that_it_has_computed(engine):
    """Steps take time by the tokens that they compute, nearly all of them of the tenant that reads
    new prompts. It runs for fewer seconds than the tenant whose context is cached."""
    e = engine(policy="fcfs", options=OPTIONS, max_num_seqs=4)
    e.token_s = 1 / 256
    cost: dict[str, float] = defaultdict(float)
    seconds: dict[str, float] = defaultdict(float)
    computed: dict[str, int] = defaultdict(int)
    land = e._land

    def timed() -> None:
        tokens = e._flying[0][0].num_scheduled_tokens
        for name, count in tokens.items():
            seconds[name[:6]] += 1.0 + sum(tokens.values()) / 256
            cost[name[:6]] += 1.0 + len(tokens) * count / 256
            computed[name[:6]] += count
        land()

    e._land = timed
    cached = Tenant("cached", 8, lambda thread, call: "p", prompt=lambda t, n: [*range(600)])
    unlike = Tenant("unlike", 8, lambda thread, call: f"{thread}-{call}",
                    prompt=lambda thread, number: unseen(thread, number)[:600])  # fmt: skip
    play(e, [cached, unlike], 3000)
    assert computed["unlike"] > 10 * computed["cached"]
    assert seconds["unlike"] < seconds["cached"]
    assert cost["unlike"] == pytest.approx(cost["cached"], rel=0.1)
    shares = e.scheduler.calls.shares
    charges = [shares.charge(name) for name in ("cached", "unlike")]
    assert charges[0] == pytest.approx(charges[1], rel=0.1)


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
