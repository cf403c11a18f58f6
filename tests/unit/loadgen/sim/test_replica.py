"""One engine in virtual time."""

from __future__ import annotations

import pytest
from support.simulated import ticking

from engine_patches.wire import CallContext
from loadgen.schema import Part
from loadgen.sim.engine import EngineSettings
from loadgen.sim.replica import Replica, SimulationError

pytestmark = pytest.mark.engine


def add(replica, name, prompt, output, now):
    parts = (Part(name, prompt),)
    return replica.add(CallContext(name, name), replica.prompt(name, parts), 7, output, now)


def test_steps_and_leaps_end_when_their_tokens_are_written():
    replica = Replica("r", ticking(), EngineSettings("fcfs"))
    add(replica, "a", 10, 20, 0.0)
    assert replica.start(0.0) == 1.0
    assert replica.finish(1.0).first_tokens == ["a"]
    # An ordinary step that shows that nobody else is here, then all but the last at once.
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
def test_a_leap_goes_no_further_than_a_call_that_comes(comes, ends):
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


def test_a_call_that_no_cache_could_hold_is_refused():
    replica = Replica("r", ticking(kv_blocks=10), EngineSettings())
    with pytest.raises(SimulationError, match="150 tokens"):
        add(replica, "a", 100, 50, 0.0)
