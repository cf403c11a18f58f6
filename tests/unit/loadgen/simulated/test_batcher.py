"""The batcher: no call is lost, blocks are freed, and the plugin's orders apply."""

from __future__ import annotations

import random

import pytest
from support.batches import play, work
from support.simulated import engine as shape_of
from support.simulated import ticking
from weft_bench.simulated.batcher import Batcher
from weft_engine.wire import ORDER_NAMES

SRPT = {"experiments": True}


def many(seed: int, count: int = 120):
    """Return calls of a few programs with common prefixes. Some arrive at once, some later."""
    draw = random.Random(seed)
    now, found = 0.0, []
    for number in range(count):
        now += draw.choice((0.0, 0.0, draw.expovariate(4.0)))
        program = number % 7
        one = work(
            f"c{number}", draw.randint(1, 300), draw.randint(1, 60),
            begins=f"system of {program % 3} " * draw.randint(1, 20), program=f"p{program}",
            service_s=draw.choice((0.0, 0.4, 3.0, 40.0)), budget_s=draw.uniform(1, 90),
            remaining_s=draw.uniform(0.1, 9),
        )  # fmt: skip
        found.append((now, one))
    return found


@pytest.mark.parametrize("policy", ORDER_NAMES)
@pytest.mark.parametrize("changes", [{}, {"kv_blocks": 25}, {"slots": 2}, {"step_tokens": 64}])
def test_every_call_ends_once_with_all_tokens_and_frees_its_blocks(policy, changes):
    calls = many(3)
    batcher = Batcher(shape_of(**changes), policy, SRPT)
    played = play(batcher, calls)
    assert sorted(played.order) == sorted(one.context.call for _, one in calls)
    assert played.got == {one.context.call: one.output_tokens for _, one in calls}
    for _, one in calls:
        report = played.of(one.context.call)
        assert report.prompt_tokens == one.prompt_tokens
        assert report.output_tokens == one.output_tokens
        assert report.cached_tokens < one.prompt_tokens + one.output_tokens
        assert report.finished
        assert report.policy == policy
    state = batcher.state()
    assert (state["running"], state["waiting"], state["kv_usage"]) == (0, 0, 0)
    shape = shape_of(**changes)
    assert state["cache_tokens"] == shape.kv_blocks * shape.block_tokens


@pytest.mark.parametrize("policy", ["fcfs", "plas", "mlfq", "vtc"])
def test_merged_steps_give_the_results_of_single_steps(policy):
    calls = many(5)
    fast = play(Batcher(shape_of(), policy, {}), calls)
    slow = play(Batcher(shape_of(), policy, {}), calls, leaps=False)
    assert [r.call for r in fast.reports] == [r.call for r in slow.reports]
    for one, other in zip(fast.reports, slow.reports, strict=True):
        assert one.queue_path == other.queue_path
        assert one.service_s == pytest.approx(other.service_s, rel=1e-3)
        assert one.waiting_s == pytest.approx(other.waiting_s, rel=1e-3, abs=1e-3)
    assert fast.steps <= slow.steps
    assert policy == "vtc" or fast.steps < 0.7 * slow.steps


def test_order_decides_which_call_runs_first():
    calls = [
        (0.0, work("first", 10, 20)),
        (0.1, work("much", 10, 5, service_s=30.0)),
        (0.2, work("little", 10, 5, service_s=1.0)),
        (0.3, work("none", 10, 5)),
    ]
    one_slot = ticking(slots=1)
    assert play(Batcher(one_slot, "fcfs", {}), calls).order == ["first", "much", "little", "none"]
    long = {"first_quantum_s": 100.0}
    assert play(Batcher(one_slot, "plas", long), calls).order[0] == "first"
    short = play(Batcher(one_slot, "plas", {"first_quantum_s": 0.6}), calls)
    assert short.order.index("none") < short.order.index("little") < short.order.index("much")


def test_call_of_a_higher_queue_preempts_and_the_preempted_call_ends_later():
    calls = [(0.0, work("old", 40, 30, service_s=500.0)), (3.5, work("new", 40, 3))]
    batcher = Batcher(ticking(slots=1), "plas", {})
    played = play(batcher, calls)
    assert played.order == ["new", "old"]
    assert played.of("old").preemptions == 1
    assert batcher.state()["displacements"] == 1
    # Its full blocks are still in the cache when it resumes.
    assert played.of("old").recomputed_tokens < 16


def test_call_that_lacks_blocks_preempts_although_slots_are_free():
    calls = [(0.0, work("old", 90, 30, service_s=500.0)), (3.5, work("new", 60, 3))]
    played = play(Batcher(ticking(slots=4, kv_blocks=9), "plas", {}), calls)
    assert played.order == ["new", "old"]
    assert played.of("old").preemptions == 1
    assert played.of("new").waiting_s <= 1


def test_computed_prefix_is_found_in_whole_blocks():
    batcher = Batcher(shape_of(), "fcfs", {})
    text = "the same system prompt for all " * 200
    played = play(batcher, [(0.0, work("a", 1000, 4, begins=text)),
                            (9.0, work("b", 1000, 4, begins=text))])  # fmt: skip
    assert played.of("a").cached_tokens == 0
    assert played.of("b").cached_tokens == 992
    assert played.of("b").service_s < played.of("a").service_s
    batcher.reset_cache()
    assert play(batcher, [(0.0, work("c", 1000, 4, begins=text))]).of("c").cached_tokens == 0


def test_an_aborted_call_leaves_nothing_and_is_reported():
    batcher = Batcher(ticking(slots=1), "fcfs", {})
    batcher.add(work("runs", 100, 50), 0.0)
    batcher.add(work("waits", 100, 50), 0.0)
    for now in (0.0, 1.0, 2.0):
        assert batcher.start(now, now) == now + 1
        batcher.finish(now + 1)
    report = batcher.abort("runs", 3.0)
    assert (report.output_tokens, report.service_s, report.finished) == (3, 3.0, True)
    assert batcher.abort("runs", 3.0) is None
    assert batcher.abort("waits", 3.0).waiting_s == 3.0
    assert batcher.violations() == []
    assert batcher.state()["kv_usage"] == 0
    assert batcher.start(3.0, 3.0) is None


def test_an_order_can_be_switched_and_an_unknown_one_is_refused():
    batcher = Batcher(ticking(slots=1), "fcfs", {})
    batcher.add(work("first", 10, 30), 0.0)
    batcher.start(0.0, 0.0)
    batcher.finish(1.0)
    batcher.add(work("much", 10, 3, service_s=100.0), 1.0)
    batcher.add(work("none", 10, 3), 1.0)
    with pytest.raises(ValueError, match="unknown policy"):
        batcher.check("nonsense")
    batcher.switch("plas", 1.0)
    assert batcher.state()["policy"] == "plas"
    assert play(batcher, []).order == ["none", "first", "much"]


def test_fits_rejects_calls_larger_than_the_cache():
    batcher = Batcher(shape_of(kv_blocks=10, block_tokens=16), "fcfs", {})
    assert batcher.fits(160)
    assert not batcher.fits(161)
    assert play(batcher, [(0.0, work("all", 150, 10))]).order == ["all"]
