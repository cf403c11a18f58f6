"""vLLM's own scheduler behind the same protocol gives the same tokens for the same calls."""

from __future__ import annotations

import pytest
from support.batches import play, work
from support.simulated import engine, ticking
from weft_bench.simulated.batcher import Batcher
from weft_bench.simulated.real import RealScheduler
from weft_engine.kv_command import KvCommand


def calls():
    text = "all of them begin alike " * 20
    return [
        (0.01 * number, work(f"c{number}", 60 + 10 * number, 5 + 3 * number, begins=text))
        for number in range(12)
    ]


def test_both_schedulers_compute_the_same():
    shape = engine(slots=4)
    plain = play(Batcher(shape, "fcfs", {}), calls())
    real = play(RealScheduler(shape, "fcfs", {}), calls(), leaps=False)
    assert real.order == plain.order
    assert real.got == plain.got == {one.context.call: one.output_tokens for _, one in calls()}
    for call in real.order:
        assert real.of(call).cached_tokens == plain.of(call).cached_tokens
        assert real.ended[call] == pytest.approx(plain.ended[call], rel=0.02)


def test_an_aborted_call_is_reported_and_an_order_switched():
    real = RealScheduler(ticking(slots=1), "fcfs", {})
    real.add(work("runs", 40, 50), 0.0)
    real.add(work("waits", 40, 50), 0.0)
    for now in (0.0, 1.0):
        assert real.start(now, now) == now + 1
        assert real.finish(now + 1).tokens == {"runs": 1}
    report = real.abort("runs", 2.0)
    assert (report.output_tokens, report.service_s) == (2, 2.0)
    assert real.abort("runs", 2.0) is None
    real.check("plas")
    real.switch("plas", 2.0)
    assert real.state()["policy"] == "plas"
    real.reset_cache()
    real.advise(KvCommand("retain", "p", ttl_s=60.0))
    assert play(real, []).order == ["waits"]
    assert real.violations() == []


def raised(real: RealScheduler, program: str) -> tuple[int, set[int]]:
    """Return a program's priority and those of all known blocks."""
    retention = real._replica.scheduler._eviction.policy
    known = retention._programs.get(program)
    return known.priority if known else 0, {mark.priority for mark in retention._meta.values()}


def step(real: RealScheduler, name: str, now: float) -> float:
    """Run a call of another program to its end. Returns the time of the end."""
    real.add(work(name, 40, 2), now)
    while (ends := real.start(now, now)) is not None:
        now = ends
        real.finish(now)
    return now


def test_priority_expires_on_the_engines_clock():
    real = RealScheduler(ticking(slots=1), "fcfs", {})
    now = step(real, "p", 0.0)
    assert raised(real, "p") == (0, {0})
    real.advise(KvCommand("priority", "p", ttl_s=60.0, priority=2))
    assert raised(real, "p") == (2, {2})
    # No further hint comes, but other calls do.
    now = step(real, "q", now + 50.0)
    assert raised(real, "p") == (2, {0, 2})
    step(real, "r", now + 20.0)
    assert raised(real, "p") == (0, {0})
    assert real.violations() == []


def test_newest_priority_applies():
    real = RealScheduler(ticking(slots=1), "fcfs", {})
    now = step(real, "p", 0.0)
    real.advise(KvCommand("priority", "p", ttl_s=10.0, priority=2))
    real.advise(KvCommand("priority", "p", ttl_s=100.0, priority=3))
    now = step(real, "q", now + 20.0)
    assert raised(real, "p")[0] == 3
    real.advise(KvCommand("priority", "p", priority=1))
    now = step(real, "r", now + 1000.0)
    assert raised(real, "p")[0] == 1, "without an end"
    real.advise(KvCommand("priority", "p", ttl_s=5.0, priority=2))
    real.advise(KvCommand("forget", "p"))
    step(real, "s", now + 20.0)
    assert raised(real, "p")[0] == 0
    assert real.violations() == []


def test_answers_are_found_in_the_next_prompt():
    real = RealScheduler(engine(), "fcfs", {})
    first = work("a", 32, 48)
    again = work("b", 100, 4)
    again = type(again)(again.context, first.text + again.text, 80 + 100, 4)
    played = play(real, [(0.0, first), (99.0, again)])
    assert played.of("b").cached_tokens >= 64
