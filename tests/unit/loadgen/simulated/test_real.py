"""vLLM's own scheduler behind the same protocol: the same calls, the same tokens."""

from __future__ import annotations

import pytest
from support.batches import play, work
from support.simulated import engine, ticking

from engine_patches.advice import KvAdvice
from loadgen.simulated.batcher import Batcher
from loadgen.simulated.real import RealScheduler


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
    real.advise(KvAdvice("retain", "p", ttl_s=60.0))
    assert play(real, []).order == ["waits"]
    assert real.violations() == []


def test_answers_are_found_in_the_next_prompt():
    real = RealScheduler(engine(), "fcfs", {})
    first = work("a", 32, 48)
    again = work("b", 100, 4)
    again = type(again)(again.context, first.text + again.text, 80 + 100, 4)
    played = play(real, [(0.0, first), (99.0, again)])
    assert played.of("b").cached_tokens >= 64
