"""Every order on vLLM's real scheduler: the calls that it serves first, without lost tokens."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from weft_engine.orders import order_names

pytestmark = pytest.mark.engine

OPTIONS = {"first_quantum_s": 2.0, "growth": 2.0, "queues": 4, "beta": 8.0}


def served(engine: Any) -> list[str]:
    """Return the calls in the order of their first steps."""
    seen: list[str] = []
    for batch in engine.batches:
        seen += [name for name in sorted(batch) if name not in seen]
    return seen


def test_program_fifo_serves_the_oldest_program_first(engine):
    e = engine(policy="program_fifo", max_num_seqs=1)
    e.add("young", arrival=200.0)
    e.add("old", arrival=100.0)
    e.run()
    assert served(e) == ["old", "young"]


def test_mlfq_gives_a_new_call_of_an_old_program_the_first_queue(engine):
    e = engine(policy="mlfq", options=OPTIONS, max_num_seqs=1)
    e.add("old", service=1e6, tokens=2)
    e.add("new", tokens=2)
    e.run()
    assert served(e) == ["old", "new"]


def test_atlas_serves_by_the_critical_path_and_not_by_the_sum(engine):
    e = engine(policy="atlas", options=OPTIONS, max_num_seqs=1)
    e.add("deep", service=20.0, critical_path=20.0, tokens=2)
    e.add("wide", service=80.0, critical_path=1.0, tokens=2)
    e.run()
    assert served(e) == ["wide", "deep"]


def test_urgency_serves_the_call_with_the_least_slack_first(engine):
    e = engine(policy="urgency", max_num_seqs=1)
    e.add("untold")
    e.add("loose", extra={"weft_budget": 50.0, "weft_cost": 1.0})
    e.add("tight", extra={"weft_budget": 50.0, "weft_cost": 45.0})
    e.run()
    assert served(e) == ["tight", "loose", "untold"]


def test_a_better_call_preempts_when_only_blocks_run_out(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=8, blocks=13)
    e.add("heavy", service=1e6, prompt=list(range(100)), tokens=30)
    e.add("heavier", service=1e7, prompt=list(range(200, 260)), tokens=30)
    e.step()
    e.step()
    # 12 blocks; the two calls hold 11 or 12.
    e.add("light", prompt=list(range(300, 360)), tokens=3)
    e.run()
    assert e.reports[0].call == "light"
    preempted = {r.call: r.preemptions for r in e.reports}
    assert preempted["light"] == 0
    assert preempted["heavy"] + preempted["heavier"] >= 1
    assert [len(e.tokens[name]) for name in ("heavy", "heavier", "light")] == [30, 30, 3]


def test_a_preempted_call_reports_its_recomputed_tokens(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=1)
    e.add("heavy", service=1e6, prompt=list(range(40)), tokens=10)
    for _ in range(4):
        e.step()
    e.add("light", prompt=list(range(100, 110)), tokens=2)
    e.run()
    report = next(r for r in e.reports if r.call == "heavy")
    assert report.preemptions == 1
    # Full blocks were found in the prefix cache.
    assert 0 < report.recomputed_tokens <= 16


def test_a_chunked_prompt_may_be_preempted_half_way(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=2, step_tokens=32)
    e.add("heavy", service=1e6, prompt=list(range(200)), tokens=3)
    e.step()
    e.step()
    e.add("light", prompt=list(range(300, 320)), tokens=2)
    e.add("lighter", prompt=list(range(330, 350)), tokens=2)
    e.run()
    reports = {r.call: r for r in e.reports}
    assert e.reports[-1].call == "heavy"
    assert reports["heavy"].preemptions == 1
    assert reports["heavy"].prompt_tokens == 200
    assert len(e.tokens["heavy"]) == 3


def test_malformed_numbers_count_as_absent_and_are_reported(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=1)
    bad = {"weft_service": "much", "weft_waiting": float("nan"), "weft_critical_path": -1.0}
    e.add("bad", tokens=2, extra=bad)
    e.add("good", tokens=2)
    e.run()
    reports = {r.call: r for r in e.reports}
    assert len(e.tokens["bad"]) == len(e.tokens["good"]) == 2
    assert {hint.partition("=")[0] for hint in reports["bad"].hints} == set(bad)
    assert reports["good"].hints == ()
    assert reports["bad"].queue_path[0] == 0


def test_no_call_starves_whatever_attributes_it_claims(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=1)
    e.add("victim", service=1e9, waiting=0.0, tokens=3)
    for number in range(30):
        e.add(f"liar{number}", service=0.0, tokens=20, extra={"weft_waiting": 1e12})
    e.run()
    assert len(e.tokens["victim"]) == 3


@pytest.mark.parametrize("policy", order_names())
def test_any_order_under_pressure_ends_every_call_with_its_tokens(engine, policy):
    e = engine(policy=policy, options=OPTIONS, max_num_seqs=3, blocks=24)
    random = Random(policy)
    wanted: dict[str, int] = {}
    for number in range(40):
        name = f"c{number}"
        wanted[name] = random.randint(1, 25)
        prompt = [random.randrange(400) for _ in range(random.randint(1, 120))]
        e.add(
            name, program=f"p{number % 7}", service=random.choice([0.0, 3.0, 50.0]),
            prompt=prompt, tokens=wanted[name],
            extra={
                name: random.uniform(1, 90)
                for name in (
                    "weft_budget", "weft_cost", "weft_left", "weft_path", "weft_deadline",
                )
            },
        )  # fmt: skip
        for _ in range(random.randrange(4)):
            e.step()
    e.run()
    assert {name: len(tokens) for name, tokens in e.tokens.items()} == wanted
    assert {r.call for r in e.reports} == set(wanted)
    assert all(r.waiting_s >= 0 and r.service_s > 0 for r in e.reports)


@pytest.mark.parametrize("swap_slots", [0, 12])
def test_a_soak_of_short_calls_leaves_nothing_behind(engine, swap_slots):
    """5,000 calls, half of them with a swap buffer that is too small, in both kinds of scheduling,
    with random aborts, preemptions, hints, and switches of the order."""
    from weft_engine.engine_link import Command

    e = engine(
        policy="plas", options=OPTIONS, max_num_seqs=4, blocks=40, max_displacements=5,
        swap_slots=swap_slots,
    )  # fmt: skip
    random = Random(swap_slots)
    alive: list[str] = []
    for number in range(1250):
        name = f"c{number}"
        # One call in eight has two sequences.
        call = f"c{number - number % 2}" if number % 16 < 2 else name
        e.add(
            name, call=call, program=f"p{random.randrange(40)}",
            service=random.choice([0.0, 0.0, 5.0, 100.0]), waiting=random.choice([0.0, 60.0]),
            prompt=[random.randrange(300) for _ in range(random.randint(1, 60))],
            tokens=random.randint(1, 6),
            extra=random.choice(
                [{}, {"weft_tags": [16, 4, 40, 3]}, {"weft_retain": 9.0}, {"weft_priority": 2}]
            ),
        )  # fmt: skip
        alive.append(name)
        for _ in range(random.randrange(3)):
            e.step()
        if random.random() < 0.15:
            e.abort(alive.pop(random.randrange(len(alive))))
        if random.random() < 0.01:
            e.scheduler.obey(Command(policy=random.choice(["fcfs", "plas", "mlfq", "resident"])))
        if random.random() < 0.005:
            e.scheduler.obey(Command(reset_cache=True))
        assert e.scheduler.violations() == []
    e.run(20_000)
    state = e.scheduler.state()
    assert state["displacements"] > 50
    if swap_slots:
        assert state["swap"]["swapped_out"] > 50
        assert state["swap"]["used"] == 0
