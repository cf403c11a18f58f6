"""The load of the scheduler bench, on vLLM's real scheduler at a small size."""

from __future__ import annotations

from itertools import pairwise

import pytest
from weft_bench.micro.scheduler.command import OURS, STOCK
from weft_bench.micro.scheduler.scene import Load, Programs, replicas

pytestmark = pytest.mark.engine


def calls(load, count):
    """The first calls, each of which ends at once."""
    programs, found = Programs(load), []
    for number in range(count):
        found.append(programs.next(float(number)))
        programs.ended(found[-1].name, float(number))
    return found


def test_calls_are_the_same_for_the_same_seed():
    first = calls(Load(seed=3), 50)
    assert first == calls(Load(seed=3), 50)
    assert first != calls(Load(seed=4), 50)
    assert min(c.service_s for c in first) < 0.5 < 16 < max(c.service_s for c in first)
    assert len({call.program for call in first}) == 50


def test_programs_return_with_their_context_and_more():
    load = Load(context=2000)
    found = calls(load, 400)
    programs = {call.program: [c for c in found if c.program == call.program] for call in found}
    assert 2 <= max(map(len, programs.values())) <= 12
    for first, second in pairwise(found):
        assert first.prompt[:250] == second.prompt[:250], "a part is the same for all"
    for mine in programs.values():
        for one, other in pairwise(mine):
            assert other.prompt[: len(one.prompt)] == one.prompt
            assert len(other.prompt) == len(one.prompt) + one.tokens + 125
            assert other.service_s > one.service_s
    assert 1200 < sum(len(call.prompt) for call in found) / 400 < 2800
    assert max(len(call.prompt) + call.tokens for call in found) < load.max_length


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_steady_load_keeps_as_many_running_and_waiting(asynchronous):
    load = Load(running=6, waiting=20, asynchronous=asynchronous)
    for replica in replicas(load, "plas").values():
        steps = [replica.step() for _ in range(200)]
        assert max(s.scheduled for s in steps) == 6
        assert {s.waiting for s in steps} <= set(range(18, 24))
        assert sum(s.admitted for s in steps) > 6, "calls ended, and others replaced them"
        assert replica.now > 0


def test_quiet_case_has_no_arrivals_and_ends():
    for replica in replicas(Load(running=6, waiting=20, quiet=True), "plas").values():
        for _ in range(20):
            replica.step()
        steps = [replica.step() for _ in range(100)]
        assert {(s.scheduled, s.admitted, s.waiting) for s in steps} == {(6, 0, 20)}
        assert all(s.schedule_s > 0 and s.update_s > 0 for s in steps)


def test_blocks_run_out_before_slots_if_programs_return_with_long_contexts():
    load = Load(running=20, waiting=30, context=2000, blocks=1000, tenants=2)
    for replica in replicas(load, "plas").values():
        for _ in range(100):
            replica.step()
        scheduler = replica.scheduler
        assert len(scheduler.running) < scheduler.max_num_running_reqs == 20
        assert len(scheduler.waiting) > 0
        assert scheduler.kv_cache_config.num_blocks == 1001
    assert {call.tenant for call in calls(load, 9)} == {"tenant-0", "tenant-1"}


def test_replicas_are_vllms_scheduler_and_wefts():
    pair = replicas(Load(running=2, waiting=2), "fcfs")
    assert type(pair[STOCK].scheduler).__module__.startswith("vllm.")
    assert pair[STOCK].scheduler.policy.value == "priority"
    assert pair[OURS].scheduler.state()["policy"] == "fcfs"
