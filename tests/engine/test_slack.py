"""The order `slack` on vLLM's real scheduler and cache."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from weft_engine.engine_link import Command
from weft_engine.kv_command import KvCommand

pytestmark = pytest.mark.engine


def target(deadline: float, left: float | None = None, path: float = 0.0) -> dict[str, Any]:
    """A target on the wire: seconds from the begin of the program, the time left at sending, and
    the predicted path. A step takes a second."""
    left = deadline if left is None else left
    return {"weft_deadline": deadline, "weft_left": left, "weft_path": path, "weft_budget": left}


def decisions(e: Any, seed: int, tenants: int) -> list[Any]:
    """Play a course of events and return every decision: what each step computed, and both queues
    after it. Programs call again, end and are aborted; blocks and slots are scarce."""
    random, alive, found = Random(seed), [], []
    for number in range(90):
        name, program = f"c{number}", random.randrange(9)
        e.add(
            name,
            program=f"p{program}" if program else "",
            arrival=float(program),
            service=random.choice([0.0, 3.0, 50.0]),
            tenant="abc"[program % tenants],
            prompt=[program * 600 + n for n in range(random.randint(1, 400))],
            tokens=random.randint(1, 30),
        )
        alive.append(name)
        chance = random.random()
        if chance < 0.1:
            e.abort(alive.pop(random.randrange(len(alive))))
        elif chance < 0.2:
            e.scheduler.obey(
                Command(kv=KvCommand(action="forget", program=f"p{random.randrange(9)}"))
            )
        found += [stepped(e) for _ in range(random.randrange(5))]
    while e.scheduler.has_unfinished_requests():
        found.append(stepped(e))
    e.land_all()
    return [*found, [(r.call, r.waiting_s, r.service_s, r.memory_wait_s) for r in e.reports]]


def stepped(e: Any) -> Any:
    flying = len(e._flying)
    e.step()
    scheduler = e.scheduler
    return (
        sorted(e.batches[-1]), flying,
        [r.request_id for r in scheduler.running], [r.request_id for r in scheduler.waiting],
        {r.request_id: r.num_computed_tokens for r in scheduler.running},
        scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
    )  # fmt: skip


@pytest.mark.parametrize("tenants", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_without_budgets_every_decision_is_that_of_the_default_order(engine, seed, tenants):
    played = [
        decisions(engine(policy=policy, max_num_seqs=4, blocks=60), seed, tenants)
        for policy in ("resident", "slack")
    ]
    assert len(played[0]) > 100
    assert played[0] == played[1]


def test_with_targets_the_decisions_differ(engine):
    """The control of the test above: the course shows decisions by targets."""

    def add_target(e: Any) -> Any:
        add, random = e.add, Random(0)
        e.add = lambda *args, **rest: add(
            *args, **rest, extra=target(random.uniform(1, 90), path=random.uniform(1, 20))
        )
        return e

    played = [
        decisions(add_target(engine(policy=policy, max_num_seqs=4, blocks=60)), 0, 1)
        for policy in ("resident", "slack")
    ]
    assert played[0] != played[1]


def test_the_program_with_the_earliest_target_comes_first(engine):
    """In place of the oldest program."""
    started = {}
    for policy in ("resident", "slack"):
        e = engine(policy=policy, max_num_seqs=2)
        for number in range(6):
            e.add(
                f"old{number}", program=f"o{number}", arrival=float(number), tokens=6, service=1.0
            )
        e.add("tight", program="t", arrival=10.0, tokens=3, extra=target(12.0), service=1.0)
        e.run()
        started[policy] = next(r for r in e.reports if r.call == "tight").waiting_s
    assert started["slack"] <= 6.0 < started["resident"]


def test_a_late_call_comes_where_it_would_come_without_its_target(engine):
    """After 3 s the path of 5 s does not fit into the 6 s that were left. Its target alone would
    put it before the two others."""
    e = engine(policy="slack", max_num_seqs=1)
    e.add("busy", tokens=8, arrival=0.0)
    e.step()
    e.add("late", program="l", arrival=3.0, extra=target(6.0, path=5.0), service=1.0)
    e.add("ample", program="a", arrival=2.0, extra=target(50.0, path=5.0), service=1.0)
    e.add("plain", program="p", arrival=1.0, service=1.0)
    e.run()
    assert [r.call for r in e.reports] == ["busy", "ample", "plain", "late"]


def test_a_short_call_with_a_target_has_the_share_of_short_calls(engine):
    """As under the default order: without it, prefill of others delays each first call."""
    for extra in ({}, target(500.0, path=5.0)):
        e = engine(policy="slack", max_num_seqs=4, blocks=250)
        for number in range(4):
            prompt = [9000 * number + n for n in range(100)]
            e.add(f"a{number}", program=f"p{number}", prompt=prompt, tokens=40)
        e.step()
        e.add("chat", program="chat", arrival=9.0, prompt=list(range(40)), tokens=5, extra=extra)
        e.step()
        assert "chat" in e.batches[-1]
        e.run()


@pytest.mark.parametrize("seed", range(4))
def test_any_targets_end_every_call_with_its_tokens(engine, seed):
    """Random and wrong targets, several tenants, siblings, aborts, switches of the order: no call
    starves, and nothing is left behind."""
    e = engine(policy="slack", max_num_seqs=4, blocks=60)
    random, wanted = Random(seed), {}
    wrong = [float("nan"), -1.0, 0.0, 1e12, "7", float("inf"), True, [1]]
    for number in range(150):
        name = f"c{number}"
        call = f"c{number - number % 3}" if number % 15 < 3 else name
        wanted[name] = random.randint(1, 20)
        values = [random.choice([random.uniform(0, 40), *wrong]) for _ in range(4)]
        names = ("weft_budget", "weft_deadline", "weft_left", "weft_path")
        e.add(
            name, call=call, program=f"p{number % 7}", arrival=float(number % 7),
            tenant="ab"[number % 7 % 2] if number > 75 else "",
            prompt=[random.randrange(400) for _ in range(random.randint(1, 200))],
            tokens=wanted[name],
            extra=dict(zip(names, values, strict=True)),
        )  # fmt: skip
        for _ in range(random.randrange(6)):
            e.step()
        assert e.scheduler.violations() == []
        if random.random() < 0.05:
            e.abort(gone := random.choice(sorted(e.scheduler.requests) or [name]))
            wanted.pop(gone, None)
        if random.random() < 0.03:
            e.scheduler.obey(Command(policy=random.choice(["slack", "slack", "plas", "resident"])))
    e.run()
    assert {name: len(e.tokens[name]) for name in wanted} == wanted
