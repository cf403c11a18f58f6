"""One engine in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.simulated import chats, engine, single, ticking
from weft_bench.virtual.engine import EngineSettings
from weft_bench.virtual.replica import Replica, SimulationError
from weft_bench.virtual.world import Setup, simulate
from weft_bench.workloads.schema import Part
from weft_bench.workloads.streams import poisson_arrivals, stream
from weft_engine.wire import CallContext

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def add(replica, name, prompt, output, now):
    parts = (Part(name, prompt),)
    return replica.add(CallContext(name, name), replica.prompt(name, parts), 7, output, now)


def test_single_and_merged_steps_end_with_their_tokens():
    replica = Replica("r", ticking(), EngineSettings("fcfs"))
    add(replica, "a", 10, 20, 0.0)
    assert replica.start(0.0) == 1.0
    assert replica.finish(1.0).first_tokens == ["a"]
    # A single step shows that no other call runs. Then all steps except the last are merged.
    assert replica.start(1.0) == 2.0
    assert not replica.finish(2.0).reports
    assert replica.start(2.0) == 19.0
    replica.finish(19.0)
    assert replica.start(19.0) == 20.0
    (report,) = replica.finish(20.0).reports
    assert (report.service_s, report.output_tokens) == (20.0, 20)
    assert replica.start(20.0) is None
    assert replica.violations() == []


@pytest.mark.parametrize(("comes", "ends"), [(5.5, 6.0), (5.0, 5.0), (2.5, 3.0), (18.5, None)])
def test_merged_steps_end_at_the_next_arrival(comes, ends):
    replica = Replica("r", ticking(), EngineSettings("fcfs"))
    add(replica, "a", 10, 20, 0.0)
    for now in (0.0, 1.0):
        replica.start(now)
        replica.finish(now + 1)
    assert replica.start(2.0) == 19.0
    changed = add(replica, "b", 10, 5, comes)
    assert changed == (ends or 19.0)
    request = replica.scheduler.requests["a"]
    assert request.num_output_tokens == int(comes)
    assert replica.busy == (comes != 5.0)


def test_call_larger_than_the_cache_is_refused():
    replica = Replica("r", ticking(kv_blocks=10), EngineSettings())
    with pytest.raises(SimulationError, match="150 tokens"):
        add(replica, "a", 100, 50, 0.0)


# Asynchronous scheduling: a step is scheduled while the previous one runs.

PLAIN = EngineSettings("fcfs")
AHEAD = replace(PLAIN, asynchronous=True)


def ends(settings, programs, arrivals, **changes):
    played = simulate(programs, arrivals, Setup([ticking(**changes)], settings))
    assert played.violations == ()
    return [(call.start_s, call.first_token_s, call.end_s) for call in played.calls]


def test_lone_call_takes_the_same_time_with_asynchronous_scheduling():
    programs = [single("a", 100, 5)]
    assert ends(AHEAD, programs, [0.0]) == ends(PLAIN, programs, [0.0]) == [(0.0, 1.0, 5.0)]


def test_new_call_waits_for_the_scheduled_step():
    """A step takes one second. The second call arrives in the first step, after the second step was
    scheduled.
    """
    programs = [single("a", 100, 5), single("b", 100, 2)]
    plain, ahead = (ends(s, programs, [0.0, 0.5])[1] for s in (PLAIN, AHEAD))
    assert plain == (1.0, 2.0, 3.0)
    assert ahead == (2.0, 3.0, 4.0)


def test_slot_becomes_free_one_step_later():
    """The step after the end of a call was scheduled while its slot was in use."""
    programs = [single("a", 100, 3), single("long", 100, 9), single("b", 100, 2)]
    arrivals = [0.0, 0.0, 0.5]
    plain, ahead = (ends(s, programs, arrivals, slots=2)[2] for s in (PLAIN, AHEAD))
    assert plain == (3.0, 4.0, 5.0)
    assert ahead == (4.0, 5.0, 6.0)


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        (engine(slots=4), {}),
        (engine(slots=6, kv_blocks=160), {}),
        (engine(slots=6, step_tokens=64), {}),
        (engine(slots=4, kv_blocks=150), {"policy": "mlfq", "swap_gib": 0.25}),
        (engine(slots=6, kv_blocks=160), {"prefix_cache": False, "tags": False}),
    ],
)
def test_every_call_ends_once_with_all_its_tokens(shape, changes):
    programs = chats(5, 30, wide=True)
    arrivals = poisson_arrivals(stream(5, "arrivals"), 12.0, len(programs))
    options = {"first_quantum_s": 0.25, "beta": 2.0}
    settings = EngineSettings(**{"policy": "plas", "options": options, **changes})
    settings = replace(settings, asynchronous=True)
    played = simulate(programs, arrivals, Setup([shape], settings))
    assert played.violations == ()
    asked = {(p.id, n): c.max_tokens for p in programs for n, c in enumerate(p.calls)}
    assert {(c.program, c.number): c.output_tokens for c in played.calls} == asked
    assert all(c.arrival_s <= c.start_s < c.first_token_s <= c.end_s for c in played.calls)
    assert played.lines() == simulate(programs, arrivals, Setup([shape], settings)).lines()


def test_aborted_call_gets_no_tokens_of_scheduled_steps():
    replica = Replica("r", ticking(), AHEAD)
    for name in ("a", "b"):
        prompt = replica.prompt(name, (Part(name, 20),))
        replica.add(CallContext(name, name), prompt, 7, 3, 0.0)
    assert replica.start(0.0) == 1.0
    assert replica.finish(1.0).first_tokens == ["a", "b"]
    report = replica.abort("a", 1.0)
    assert report is not None
    assert report.output_tokens == 1
    for now in (1.0, 2.0):
        assert replica.start(now) == now + 1.0
        ended = [done.call for done in replica.finish(now + 1.0).reports]
    assert ended == ["b"]
    assert replica.start(3.0) is None
    assert replica.violations() == []
