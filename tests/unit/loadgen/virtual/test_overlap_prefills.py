"""Running prefills and the turns that wait for them."""

from __future__ import annotations

from weft_bench.virtual.overlap import Prefills, name_of
from weft_bench.virtual.records import PrefillRecord
from weft_engine.wire import CallReport


def begun():
    prefills = Prefills()
    call = name_of("p", 1)
    prefills.begin(call, PrefillRecord("p", 1, "replica-3", 5.0, 100))
    return prefills, call


def test_turn_waits_for_its_prefill_and_goes_to_its_replica():
    prefills, call = begun()
    assert prefills.hold("p", 2, 6.0) == ""
    assert prefills.hold("p", 1, 6.0) == call
    report = CallReport(call, service_s=1.5, waiting_s=0.5, cached_tokens=40)
    assert prefills.end(report, 60, 6.5) == ("p", 1)
    assert prefills.running(call) is None
    assert prefills.hold("p", 1, 6.5) == ""
    assert prefills.release("p", 1, 6.5) == (6.0, "replica-3")
    (record,) = prefills.records
    assert (record.end_s, record.service_s, record.waiting_s) == (6.5, 1.5, 0.5)
    assert (record.cached_tokens, record.computed_tokens) == (40, 60)


def test_prefill_that_ended_before_its_turn_delays_no_turn():
    prefills, call = begun()
    assert prefills.end(CallReport(call), 100, 6.0) is None
    assert prefills.release("p", 1, 8.0) == (8.0, "replica-3")
    assert prefills.release("p", 2, 9.0) == (9.0, "")
