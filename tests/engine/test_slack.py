"""The order `slack` on vLLM's real scheduler and cache."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from weft_engine.engine_link import Command
from weft_engine.kv_command import KvCommand

pytestmark = pytest.mark.engine

# A step takes a second.
MARGIN = {"due_margin_s": 4.0}


def budget(seconds: float, cost: float | None = None) -> dict[str, Any]:
    """A call's deadline and predicted cost on the wire."""
    return {"weft_budget": seconds} | ({} if cost is None else {"weft_cost": cost})


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


def test_with_budgets_the_decisions_differ(engine):
    """The control of the test above: the course shows decisions of the layer."""

    def add_budget(e: Any) -> Any:
        add, random = e.add, Random(0)
        e.add = lambda *args, **rest: add(
            *args, **rest, extra=budget(random.uniform(1, 90), random.uniform(1, 20))
        )
        return e

    played = [
        decisions(add_budget(engine(policy=policy, max_num_seqs=4, blocks=60)), 0, 1)
        for policy in ("resident", "slack")
    ]
    assert played[0] != played[1]


def test_a_due_call_is_served_before_an_older_program(engine):
    started = {}
    for policy in ("resident", "slack"):
        e = engine(policy=policy, options=MARGIN, max_num_seqs=2)
        for number in range(6):
            e.add(f"old{number}", program=f"o{number}", arrival=float(number), tokens=6)
        e.add("due", program="d", arrival=100.0, tokens=3, extra=budget(8.0, 3.0))
        e.run()
        started[policy] = next(r for r in e.reports if r.call == "due")
    assert started["resident"].waiting_s > 8.0
    assert started["slack"].waiting_s + started["slack"].service_s <= 8.0


def test_a_call_with_much_slack_and_a_late_one_keep_their_places(engine):
    e = engine(policy="slack", options=MARGIN, max_num_seqs=1)
    e.add("busy", tokens=3, arrival=0.0)
    e.step()
    e.add("late", arrival=3.0, extra=budget(1.0, 5.0))
    e.add("ample", arrival=2.0, extra=budget(1000.0, 5.0))
    e.add("plain", arrival=1.0)
    e.run()
    assert [r.call for r in e.reports] == ["busy", "plain", "ample", "late"]


def test_a_due_call_takes_the_slot_of_a_call_that_can_wait(engine):
    """The one in the way has much slack, is late, or has no target."""
    for extra in (budget(1000.0, 30.0), budget(1.0, 30.0), {}):
        e = engine(policy="slack", options=MARGIN, max_num_seqs=1)
        e.add("long", tokens=30, extra=extra)
        e.step()
        e.add("due", tokens=2, extra=budget(5.0, 2.0))
        e.run()
        reports = {r.call: r for r in e.reports}
        assert [r.call for r in e.reports] == ["due", "long"]
        assert (reports["long"].preemptions, reports["due"].preemptions) == (1, 0)
        assert reports["due"].waiting_s + reports["due"].service_s <= 5.0


@pytest.mark.parametrize("cost", [2.0, None])
def test_a_due_call_takes_no_slot_of_a_call_that_would_then_miss(engine, cost):
    """The running call has 5 s of slack. It would wait 2 s or for an unknown time, and the margin
    is 4 s."""
    e = engine(policy="slack", options=MARGIN, max_num_seqs=1)
    e.add("long", tokens=30, extra=budget(35.0, 30.0))
    e.step()
    e.add("due", tokens=2, extra=budget(5.0, cost))
    e.run()
    assert [r.call for r in e.reports] == ["long", "due"]


def test_due_calls_leave_slots_to_the_default_order(engine):
    e = engine(policy="slack", options=MARGIN, max_num_seqs=4)
    for number in range(8):
        e.add(f"plain{number}", arrival=float(number), tokens=20)
    e.step()
    for number in range(40):
        for one in range(2):
            e.add(f"due{number}-{one}", arrival=200.0, tokens=4, extra=budget(6.0, 3.0))
        e.step()
        assert sum(name.startswith("due") for name in e.batches[-1]) <= 3
    # A slot serves two of them in these steps, and the other slots the due calls.
    assert sum(r.call.startswith("plain") for r in e.reports) >= 2
    assert sum(r.call.startswith("due") for r in e.reports) >= 20
    e.run()


def test_a_large_call_is_not_passed_over_for_ever_by_due_calls(engine):
    """Due calls hold the memory that the first call of the default order needs. After the patience
    of 30 s it comes first. `beta` keeps the default order itself from deferring it for long."""
    waited = {}
    for patience in (30.0, 1e6):
        e = engine(
            policy="slack", options={**MARGIN, "default_budget_s": patience, "beta": 0.1},
            max_num_seqs=4, blocks=60,
        )  # fmt: skip
        for number in range(200):
            e.add(
                f"due{number}", arrival=1000.0 + number, tokens=6, extra=budget(10.0, 6.0),
                prompt=[number * 300 + n for n in range(280)],
            )  # fmt: skip
            if number == 8:
                e.add("large", arrival=0.0, prompt=[9 + n for n in range(600)], tokens=4)
            e.step()
            e.step()
        e.run()
        waited[patience] = next(r for r in e.reports if r.call == "large").waiting_s
    assert waited[30.0] < 60
    assert waited[1e6] > 200


def watched(e: Any) -> list[str]:
    """Check that no call is preempted for due calls that would then miss its target, and return the
    preempted ones."""
    preemption, found = e.scheduler._decisions._preemption, []
    decide = preemption.decide_for_due

    def checked(now: float, due: Any) -> Any:
        victims, coming = decide(now, due)
        calls = e.scheduler.calls
        costs = [calls.of(name).context.cost_s for name in coming]
        for name in victims:
            call = calls.of(name)
            assert call.running
            assert not call.due
            if call.context.budget_s is not None:
                takes = max(call.context.cost_s or 0.0, call.service_s)
                slack = call.context.budget_s - call.waiting_s - takes
                # It waits at least as long as the call that takes its slot runs.
                assert slack < 0 or (None not in costs and slack >= max(costs))
        found.extend(victims)
        return victims, coming

    preemption.decide_for_due = checked
    return found


@pytest.mark.parametrize("seed", range(4))
def test_any_budgets_end_every_call_with_its_tokens(engine, seed):
    """Random and wrong budgets and costs, several tenants, siblings, aborts, switches of the order:
    no call starves, and nothing is left behind."""
    e = engine(policy="slack", options=MARGIN, max_num_seqs=4, blocks=60)
    random, wanted = Random(seed), {}
    victims = watched(e)
    wrong = [float("nan"), -1.0, 0.0, 1e12, "7", float("inf"), True, [1]]
    for number in range(150):
        name = f"c{number}"
        call = f"c{number - number % 3}" if number % 15 < 3 else name
        wanted[name] = random.randint(1, 20)
        seconds = random.choice([random.uniform(0, 40), random.uniform(0, 40), *wrong])
        cost = random.choice([random.uniform(0, 20), random.uniform(0, 20), *wrong])
        e.add(
            name, call=call, program=f"p{number % 7}", arrival=float(number % 7),
            tenant="ab"[number % 7 % 2] if number > 75 else "",
            prompt=[random.randrange(400) for _ in range(random.randint(1, 200))],
            tokens=wanted[name],
            extra={
                "weft_budget": seconds, "weft_cost": cost,
                "weft_slo_weight": random.choice([1.0, 4.0, 0.0, "x", 1e9]),
            },
        )  # fmt: skip
        for _ in range(random.randrange(6)):
            e.step()
        assert e.scheduler.violations() == []
        if random.random() < 0.05:
            e.abort(gone := random.choice(sorted(e.scheduler.requests) or [name]))
            wanted.pop(gone, None)
        if random.random() < 0.03:
            e.scheduler.obey(Command(policy=random.choice(["slack", "slack", "qlm", "resident"])))
    e.run()
    assert {name: len(e.tokens[name]) for name in wanted} == wanted
    assert victims


def test_options_change_while_calls_run(engine):
    e = engine(policy="slack", options=MARGIN, max_num_seqs=1)
    e.add("runs", tokens=3)
    e.step()
    e.add("plain", tokens=1, arrival=1.0)
    e.add("due", tokens=1, arrival=2.0, extra=budget(15.0, 1.0))
    e.scheduler.obey(Command(options={"due_margin_s": 30.0}))
    assert e.scheduler.state()["options"]["due_margin_s"] == 30.0
    e.run()
    assert [r.call for r in e.reports] == ["due", "runs", "plain"]
    assert e.scheduler.violations() == []
