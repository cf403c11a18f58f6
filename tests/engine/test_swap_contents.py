"""Swap on vLLM's real scheduler: every KV position that a step reads has the right content."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

pytestmark = pytest.mark.engine

OPTIONS = {"first_quantum_s": 2.0, "growth": 2.0, "queues": 4, "beta": 8.0}


def watched(engine: Any) -> Any:
    from memory import KVMemory

    return KVMemory(engine)


def preempt(engine: Any, name: str) -> None:
    scheduler = engine.scheduler
    scheduler.preempt(scheduler.requests[name], scheduler.clock())


def preempt_any(engine: Any, random: Random) -> bool:
    """Preempt one running call at random. Returns whether a call was running."""
    scheduler = engine.scheduler
    able = [r for r in scheduler.running if scheduler.can_be_preempted(r)]
    if able:
        victim = random.choice(able)
        call = scheduler.calls.of(victim.request_id)
        # It is often put behind all others, so that its blocks are overwritten before it resumes.
        call.rank = (*call.rank[:2], call.rank[2] + random.choice([0, 10_000]))
        scheduler.calls.moved.add(victim.request_id)
        preempt(engine, victim.request_id)
    return bool(able)


@pytest.mark.parametrize(
    ("slots", "beside"),
    [(0, False), (40, False), (40, True), (400, False), (400, True)],
    ids=["off", "too small", "too small, async loads", "large", "large, async loads"],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_every_step_reads_what_its_context_wrote(engine, slots, beside, seed):
    """Random preemptions, also for lack of blocks, chunked prompts, shared prefixes, two tenants,
    aborts in any state and an emptied cache."""
    from weft_engine.engine_link import Command

    e = engine(
        policy="plas", options=OPTIONS, max_num_seqs=4, blocks=30, step_tokens=48,
        swap_slots=slots, swap_async=beside,
    )  # fmt: skip
    memory, random = watched(e), Random(seed)
    shared = list(range(40))
    wanted: dict[str, int] = {}
    alive: list[str] = []
    forced = 0
    for number in range(150):
        name = f"c{number}"
        own = [random.randrange(400) for _ in range(random.randint(1, 90))]
        wanted[name] = random.randint(1, 40)
        e.add(
            name, program=f"p{number % 9}", service=random.choice([0.0, 3.0, 50.0]),
            prompt=(shared if number % 3 == 0 else []) + own, tokens=wanted[name],
            salt=random.choice(["one", "two"]),
        )  # fmt: skip
        alive.append(name)
        for _ in range(random.randrange(5)):
            forced += random.random() < 0.4 and preempt_any(e, random)
            e.step()
        if random.random() < 0.1:
            gone = alive.pop(random.randrange(len(alive)))
            e.abort(gone)
            wanted.pop(gone)
        if random.random() < 0.02:
            e.scheduler.obey(Command(reset_cache=True))
        assert e.scheduler.violations() == []
    while len(e.scheduler.requests) > 2:
        forced += random.random() < 0.3 and preempt_any(e, random)
        e.step()
    e.run()
    assert forced > 200
    assert {n: len(t) for n, t in e.tokens.items() if n in wanted} == wanted
    assert memory.read > 10_000
    state = e.scheduler.state()["swap"]
    if slots:
        assert state["used"] == 0
        assert memory.brought_back == state["swapped_in"] > 100
    if slots == 40:
        assert state["dropped"] > 100


def test_an_emptying_by_vllm_itself_empties_the_buffer_too(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=1, blocks=30, swap_slots=40)
    e.add("c", prompt=list(range(60)), tokens=30)
    for _ in range(5):
        e.step()
    preempt(e, "c")
    assert e.scheduler.state()["swap"]["used"] > 0
    e.land_all()
    assert e.scheduler.reset_prefix_cache()
    assert e.scheduler.state()["swap"]["used"] == 0
    e.run()
    assert len(e.tokens["c"]) == 30


@pytest.mark.parametrize("slots", [0, 40], ids=["off", "on"])
def test_a_grammar_resumes_with_its_preempted_call(engine, slots):
    """Async scheduling samples a step before the tokens of the previous one are known. The grammar
    of a preempted call must still count each token once."""
    from grammar import FIRST

    e = engine(policy="plas", options=OPTIONS, max_num_seqs=4, blocks=60, swap_slots=slots)
    random = Random(3)
    wanted = {f"c{n}": random.randint(1, 60) for n in range(60)}
    forced = 0
    for number, (name, tokens) in enumerate(wanted.items()):
        prompt = [random.randrange(400) for _ in range(random.randint(1, 60))]
        e.add(name, program=f"p{number % 7}", prompt=prompt, tokens=tokens, grammar=number % 3 > 0)
        for _ in range(4):
            forced += random.random() < 0.5 and preempt_any(e, random)
            e.step()
    while len(e.scheduler.requests) > 2:
        forced += random.random() < 0.3 and preempt_any(e, random)
        e.step()
    e.run()
    assert forced > 100
    for number, (name, tokens) in enumerate(wanted.items()):
        counted = list(range(FIRST, FIRST + tokens))
        assert e.tokens[name] == (counted if number % 3 > 0 else [7] * tokens)
