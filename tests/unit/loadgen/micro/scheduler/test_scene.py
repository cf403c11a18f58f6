"""The load of the scheduler bench, on vLLM's real scheduler at a small size."""

from __future__ import annotations

from itertools import islice

import pytest
from weft_bench.micro.scheduler.command import OURS, STOCK
from weft_bench.micro.scheduler.scene import Load, calls, replicas

pytestmark = pytest.mark.engine


def test_calls_are_the_same_for_the_same_seed():
    first = list(islice(calls(Load(seed=3)), 50))
    assert first == list(islice(calls(Load(seed=3)), 50))
    assert first != list(islice(calls(Load(seed=4)), 50))
    assert min(c.service_s for c in first) < 0.5 < 16 < max(c.service_s for c in first)


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


def test_blocks_run_out_before_slots_in_the_scarce_case():
    load = Load(running=20, waiting=30, scarce=True, tenants=2)
    for replica in replicas(load, "plas").values():
        for _ in range(60):
            replica.step()
        scheduler = replica.scheduler
        assert len(scheduler.running) < load.slots == scheduler.max_num_running_reqs
        assert len(scheduler.waiting) > 0
        assert min(r.num_prompt_tokens for r in scheduler.requests.values()) > 6144
    assert {call.tenant for call in islice(calls(load), 9)} == {"tenant-0", "tenant-1"}


def test_replicas_are_vllms_scheduler_and_wefts():
    pair = replicas(Load(running=2, waiting=2), "fcfs")
    assert type(pair[STOCK].scheduler).__module__.startswith("vllm.")
    assert pair[STOCK].scheduler.policy.value == "priority"
    assert pair[OURS].scheduler.state()["policy"] == "fcfs"
