"""Short calls beside agents under the order `resident`, on vLLM's real scheduler and cache."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

pytestmark = pytest.mark.engine

# Seconds of a step without prefill, and of a prompt token.
STEP_S, TOKEN_S = 0.012, 0.0001
# The delay that ShortCalls allows: seconds at once, and a share of the time without prefill.
AT_ONCE_S, DELAY = 0.1, 0.25


def text(who: int, length: int) -> list[int]:
    """A program's own tokens."""
    return [who * 2100 + n for n in range(length)]


def learned(engine: Any, **shape: Any) -> Any:
    """An idle engine that knows the duration of its steps. A short call has at most 62 tokens."""
    e = engine(policy="resident", **{"blocks": 250, "step_tokens": 2048, **shape})
    e.step_s, e.token_s = STEP_S, TOKEN_S
    e.add("first", program="first", prompt=text(0, 1000), tokens=20)
    e.run()
    return e


def shorts_in(batch: frozenset[str]) -> int:
    return sum(name.startswith("chat") for name in batch)


def with_agents(engine: Any, agents: int, **shape: Any) -> Any:
    """An engine whose slots are all taken by calls of residents that decode."""
    e = learned(engine, max_num_seqs=agents, **shape)
    for number in range(agents):
        e.add(f"a{number}", program=f"p{number}", prompt=text(1 + number, 100), tokens=80)
    for _ in range(4):
        e.step()
    assert len(e.scheduler.running) == agents
    return e


def test_a_short_call_takes_a_slot_at_the_next_step_if_residents_have_all(engine):
    e = with_agents(engine, 4)
    e.add("chat", program="chat", arrival=9.0, prompt=text(9, 40), tokens=5)
    e.step()
    assert "chat" in e.batches[-1]
    assert e.scheduler.state()["displacements"] == 1
    e.run()
    ended = [report.call for report in e.reports]
    assert ended.index("chat") < ended.index("a0")
    # The preempted call found its context in the cache.
    assert e.scheduler.state()["recomputed_tokens"] < 32
    assert {name: len(tokens) for name, tokens in e.tokens.items()} == {
        "first": 20, "chat": 5, **{f"a{number}": 80 for number in range(4)}
    }  # fmt: skip


def test_a_long_prompt_after_a_short_call_runs_on_an_idle_engine_whose_first_step_was_slow(engine):
    """Then 16 prompt tokens seem to take longer than all that a step may spend on prompts."""
    e = engine(policy="resident", blocks=250, step_tokens=2048)
    e.step_s, e.token_s = 0.0001, 0.05
    e.add("chat", program="chat", prompt=text(9, 40), tokens=5)
    e.run()
    e.add("long", program="p", prompt=text(1, 1000), tokens=2)
    e.step()
    assert "long" in e.batches[-1]
    e.run()
    assert len(e.tokens["long"]) == 2


@pytest.mark.parametrize("what", ["long", "later"])
def test_other_calls_take_no_slot_of_a_resident(engine, what):
    """A long prompt, and a later call of a program."""
    e = with_agents(engine, 4)
    length, service = (200, 0.0) if what == "long" else (40, 1.0)
    e.add("call", program="q", arrival=9.0, prompt=text(9, length), service=service)
    e.run()
    assert e.scheduler.state()["displacements"] == 0


def test_many_short_calls_take_a_quarter_of_the_slots(engine):
    e = with_agents(engine, 8)
    for number in range(20):
        e.add(f"chat{number}", prompt=text(10 + number, 30), tokens=6)
    steps = len(e.batches)
    while not any(report.call.startswith("a") for report in e.reports):
        e.step()
    found = [shorts_in(batch) for batch in e.batches[steps:]]
    assert max(found) == 2
    assert sum(found) >= 2 * 50
    e.run()


def prefill_beside_a_short_call(e: Any) -> tuple[int, int, float]:
    """Play a short call of 20 tokens and a long prompt that arrives with its second token. Returns
    the prompt tokens that the long call has computed when the short one ends, the steps until then
    and their seconds."""
    e.add("chat", program="chat", prompt=text(8, 40), tokens=20)
    e.step()
    e.add("long", program="long", arrival=1.0, prompt=text(9, 2000), tokens=2)
    begun, steps = e.now, len(e.batches)
    while not e.reports or e.reports[-1].call != "chat":
        e.step()
    long = e.scheduler.requests.get("long")
    computed = 2000 if long is None else int(long.num_computed_tokens)
    return computed, len(e.batches) - steps, e.now - begun


def test_prefill_delays_a_short_call_only_a_little(engine):
    e = learned(engine)
    computed, steps, took_s = prefill_beside_a_short_call(e)
    # The harness counts each token of a step, decoded ones too.
    alone_s = steps * (STEP_S + TOKEN_S)
    assert took_s <= AT_ONCE_S + (1 + DELAY) * alone_s + 2 * STEP_S
    # The long prompt gets what is allowed and does not stand still.
    assert AT_ONCE_S / TOKEN_S < computed < 2000
    e.run()
    assert len(e.tokens["long"]) == 2


def test_a_step_is_short_while_short_calls_come(engine):
    """A prompt of 2,000 tokens runs alone 1 s and 11 s after a short call."""
    computed = {}
    for pause in (1, 11):
        e = learned(engine)
        e.add("chat", prompt=text(8, 40))
        while e.busy:
            e.step() if e.scheduler.has_unfinished_requests() else e.land_all()
        e.add("agent", program="agent", service=1.0, prompt=text(7, 40), tokens=2000)
        begun = e.now
        while e.now < begun + pause:
            e.step()
        e.abort("agent")
        e.land_all()
        e.add("long", program="long", arrival=1.0, prompt=text(9, 2000), tokens=2)
        e.step()
        computed[pause] = int(e.scheduler.requests["long"].num_computed_tokens)
        e.run()
    assert 700 <= computed[1] <= 900
    assert computed[11] >= 1900


def test_steps_without_sequences_do_not_change_the_costs(engine):
    """vLLM's core reports such a step, of almost no time, after a call that has ended."""
    e = learned(engine)
    e.step_s = STEP_S / 100
    for _ in range(40):
        e.step()
    assert e.batches[-1] == frozenset()
    e.step_s = STEP_S
    e.add("chat", prompt=text(8, 40))
    e.run()
    e.add("long", program="long", arrival=1.0, prompt=text(9, 2000), tokens=2)
    e.step()
    assert e.scheduler.requests["long"].num_computed_tokens >= 400
    e.run()


def test_a_flood_of_short_calls_leaves_agents_half_of_the_time(engine):
    """Two short calls always run, and a long prompt is always there."""
    computed = {}
    for flood in (False, True):
        e = learned(engine, max_num_seqs=6)
        e.add("other", program="other", service=1.0, prompt=text(7, 40), tokens=10_000)
        number, seen = 0, len(e.reports)
        e.add("long0", program="long0", arrival=0.5, prompt=text(9, 1900))
        alive = 0
        while e.now < 60:
            while flood and alive < 2:
                e.add(f"chat{number}", arrival=2.0 + number, prompt=text(20 + number, 30), tokens=9)
                number, alive = number + 1, alive + 1
            e.step()
            for report in e.reports[seen:]:
                if report.call.startswith("chat"):
                    alive -= 1
                elif report.call.startswith("long"):
                    name = f"long{len(e.reports)}"
                    e.add(name, program=name, arrival=0.5, prompt=text(40 + len(e.reports), 1900))
            seen = len(e.reports)
        computed[flood] = sum(r.prompt_tokens for r in e.reports if r.call.startswith("long"))
        for name in list(e.scheduler.requests):
            e.abort(name)
        e.run()
    assert 0.35 * computed[False] < computed[True] < 0.9 * computed[False]


@pytest.mark.parametrize("seed", range(4))
def test_any_course_of_events_ends_with_all_calls_and_nothing_held(engine, seed):
    """Short calls and calls of agents of one or two tenants arrive and are aborted, and blocks run
    out."""
    e = learned(engine, blocks=130, max_num_seqs=4, step_tokens=256)
    random, alive, wanted = Random(seed), [], {}
    for number in range(150):
        short = random.random() < 0.5
        name = f"chat{number}" if short else f"c{number}"
        program = "" if short else f"p{random.randrange(6)}"
        e.add(
            name,
            program=program,
            arrival=float(number),
            service=0.0 if short else 1.0,
            tenant="ab"[random.randrange(2)] if seed % 2 else "",
            prompt=text(number % 40, random.randint(1, 30 if short else 500)),
            tokens=wanted.setdefault(name, random.randint(1, 30)),
        )
        alive.append(name)
        for _ in range(random.randrange(5)):
            e.step()
        if random.random() < 0.1:
            gone = alive.pop(random.randrange(len(alive)))
            wanted.pop(gone, None)
            e.abort(gone)
        assert e.scheduler.violations() == []
    e.run(20_000)
    assert {name: len(e.tokens[name]) for name in wanted} == wanted
