"""Receipts: bounded, found by request and program, separate by tenant."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.wire import CallReport
from weft_gateway.model import Decision, ProgramKey, ReplicaCost
from weft_gateway.model.slo import CallBudget, Scope
from weft_gateway.telemetry.receipts import Receipt, Receipts


def receipt(number: int, program: str = "p", tenant: str = "t", request: str = "") -> Receipt:
    return Receipt(
        request or f"req-{number}", f"call-{number}", ProgramKey(tenant, program), "main", "",
        "x-weft-program", "chat", "m", float(number),
        Decision(
            "r0", True, frozenset({"r0", "r1"}), "home",
            {"home": {"r0": 1.0, "r1": 0.0}}, {"r2": "healthy"},
            costs={"r0": ReplicaCost(2.0, 3.0, 1.0, 0.5, 1.0, 2.0, 64)}, budget_s=4.0,
        ),
        "r0", 100, 0.5,
    )  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60),
    st.integers(0, 7),
    st.floats(0, 80),
)
def test_receipts_are_limited_in_number_and_age(calls, limit, now):
    kept = Receipts(limit, 20.0)
    for number, (program, request) in enumerate(calls):
        kept.add(receipt(number, f"p{program}", request=f"r{request}"))
        assert len(kept) <= limit
    newest = range(max(0, len(calls) - limit), len(calls))
    alive = [n for n in newest if n >= now - 20.0]
    found = [r.call for p in range(4) for r in kept.story(ProgramKey("t", f"p{p}"), now)]
    assert sorted(found) == sorted(f"call-{n}" for n in alive)
    for request in range(6):
        last = max((n for n in alive if calls[n][1] == request), default=None)
        one = kept.find("t", f"r{request}", now)
        assert (one and one.call) == (None if last is None else f"call-{last}")
    kept.find("t", "none", 1e9)
    assert len(kept) == 0


def test_tenant_evicts_only_its_own_receipts():
    kept = Receipts(10, 100.0)
    for number in range(4):
        kept.add(receipt(number, tenant="quiet"))
    for number in range(4, 40):
        kept.add(receipt(number, tenant="loud"))
    for tenant, first, after in (("quiet", 0, 4), ("loud", 34, 40)):
        found = kept.story(ProgramKey(tenant, "p"), 40.0)
        assert [r.call for r in found] == [f"call-{number}" for number in range(first, after)]
    # A late tenant gets its share too.
    for number in range(40, 42):
        kept.add(receipt(number, tenant="quiet"))
    assert len(kept.story(ProgramKey("quiet", "p"), 40.0)) == 5


@pytest.mark.parametrize(
    ("wait_s", "tokens", "ahead", "text"),
    [
        (3.21, 18_240, 2, "waited 3.2 s for memory: needs 18k tokens, 2 programs ahead"),
        (0.0123, 900, 1, "waited 0.012 s for memory: needs 900 tokens, 1 program ahead"),
        (120.0, 9_999, 0, "waited 120.0 s for memory: needs 9999 tokens, 0 programs ahead"),
    ],
)
def test_receipt_tells_a_wait_for_memory_in_words(wait_s, tokens, ahead, text):
    one = receipt(1)
    assert one.to_json()["memory"] is None
    one.memory_wait_s, one.memory_tokens, one.programs_ahead = wait_s, tokens, ahead
    assert one.to_json()["memory"] == {
        "memory_wait_s": wait_s,
        "memory_tokens": tokens,
        "programs_ahead": ahead,
        "text": text,
    }


BUDGET = CallBudget(
    "report", Scope.PROGRAM, 90.0, 1000.0, 60.0, 20.0, 5.0, 2.0, 3.0, 2, False,
    p90_s=8.0, tokens=40.0, remaining_p90=5,
)  # fmt: skip


def answered(report: CallReport | None, budget: CallBudget = BUDGET, first_byte_s: float = 2.0):
    """A call that took 30 s from its sending."""
    one = receipt(1)
    one.budget, one.outcome, one.report = budget, "ok", report
    one.overhead_s, one.first_byte_s, one.total_s = 1.0, 1.0 + first_byte_s, 31.0
    return one.to_json()["slo"]


def test_call_with_a_target_shows_budget_predicted_and_actual_time():
    assert receipt(1).to_json()["slo"] is None
    assert answered(CallReport("call-1")) == {
        "class": "report", "scope": "program", "deadline_s": 90.0, "target": 1000.0,
        "left_s": 60.0, "budget_s": 20.0, "predicted_s": 5.0, "predicted_p90_s": 8.0,
        "predicted_tokens": 40.0, "actual_s": 30.0, "remaining_calls": 2, "remaining_calls_p90": 5,
        "late": False, "held_s": 0.0,
        "cause": "work",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("report", "first_byte_s", "cause"),
    [
        (CallReport("c", waiting_s=27.0), 28.0, "waiting"),
        (CallReport("c", waiting_s=27.0, memory_wait_s=26.0), 28.0, "waiting"),
        (CallReport("c", waiting_s=1.0), 29.0, "work"),
        (CallReport("c", waiting_s=1.0), 2.0, "work"),
        (None, 2.0, None),
    ],
)
def test_call_over_its_budget_shows_the_cause(report, first_byte_s, cause):
    assert answered(report, first_byte_s=first_byte_s)["cause"] == cause


def test_call_within_its_budget_has_no_cause():
    report = CallReport("c", waiting_s=27.0)
    assert answered(report, replace(BUDGET, budget_s=30.0))["cause"] is None


@pytest.mark.parametrize("report", [None, CallReport("c", waiting_s=27.0)])
def test_cause_of_a_call_that_was_late_when_sent_is_before_it(report):
    assert answered(report, replace(BUDGET, late=True, cause="client"))["cause"] == "client"
