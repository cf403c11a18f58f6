"""Handles of announced prefixes: matched, bounded, expiring, and what they saved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_patches.wire import CallReport
from gateway.model import ProgramKey
from gateway.overlap.prefill import MAX_TTL_S, PrefillError, Prefills, announced

KEY = ProgramKey("t", "p")
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Go."}
TOOL = {"role": "tool", "tool_call_id": "c", "content": "42"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def begin(prefills, *messages, now=0.0, ttl=10.0, key=KEY, **body):
    prefix = announced({"messages": list(messages), **body})
    return prefills.begin(key, "m", prefix, "r0", now, ttl)


def test_a_turn_that_begins_with_what_was_announced_is_taken():
    prefills = Prefills()
    prefill = begin(prefills, SYSTEM, USER, tools=TOOLS)
    reordered = {"content": "Be brief.", "role": "system"}
    prefills.take(prefill, "m", {"messages": [reordered, USER, TOOL], "tools": TOOLS}, 1.0)
    assert prefill.taken_s == 1.0


def test_what_is_empty_may_be_left_out():
    prefills = Prefills()
    prefill = begin(prefills, {"role": "assistant", "content": None, "tool_calls": [1]})
    turn = {"messages": [{"role": "assistant", "content": "", "tool_calls": [1]}, TOOL]}
    prefills.take(prefill, "m", turn, 1.0)
    assert prefill.taken_s == 1.0


@pytest.mark.parametrize(
    ("model", "body", "reason"),
    [
        ("m", {"messages": [SYSTEM, TOOL, USER], "tools": TOOLS}, "message 1 differs"),
        ("m", {"messages": [SYSTEM], "tools": TOOLS}, "message 1 differs"),
        ("m", {"messages": [SYSTEM, USER, TOOL]}, "tools"),
        ("m", {"messages": [SYSTEM, USER], "tools": TOOLS, "chat_template": "x"}, "template"),
        ("other", {"messages": [SYSTEM, USER, TOOL], "tools": TOOLS}, "'m'"),
    ],
)
def test_another_prefix_than_announced_is_a_clear_error(model, body, reason):
    prefills = Prefills()
    prefill = begin(prefills, SYSTEM, USER, tools=TOOLS)
    with pytest.raises(PrefillError, match=reason) as refused:
        prefills.take(prefill, model, body, 1.0)
    assert refused.value.code == "prefill_prefix_mismatch"
    assert prefill.taken_s == 0.0


@pytest.mark.parametrize("messages", [None, [], "text", {"role": "user"}, 3])
def test_what_is_no_chat_is_refused(messages):
    with pytest.raises(PrefillError):
        announced({"messages": messages})


def test_messages_nested_beyond_reason_are_refused():
    deep: object = "x"
    for _ in range(400):
        deep = [deep]
    with pytest.raises(PrefillError):
        announced({"messages": [deep]})


def test_a_handle_is_its_tenants_and_ends_with_its_time():
    prefills = Prefills()
    prefill = begin(prefills, USER, ttl=10.0)
    assert prefills.find("t", prefill.id, 9.9) is prefill
    for tenant, now, code in (("u", 1.0, "prefill_not_found"), ("t", 10.0, "prefill_expired")):
        with pytest.raises(PrefillError) as refused:
            prefills.find(tenant, prefill.id, now)
        assert refused.value.code == code
    assert prefills.expired(10.0) == [prefill]
    assert len(prefills) == 0
    assert begin(prefills, USER, ttl=1e9).expires_s == MAX_TTL_S


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 50), st.booleans()), max_size=40))
def test_bounds_hold_and_counts_return_to_nothing(steps):
    prefills = Prefills(per_tenant=4, in_all=9)
    for tenant, ttl, drop in steps:
        key = ProgramKey(f"t{tenant}", "p")
        if len(prefills.of_program(key)) == 4 or len(prefills) == 9:
            with pytest.raises(PrefillError, match="At most 4"):
                begin(prefills, USER, ttl=ttl, key=key)
            continue
        prefill = begin(prefills, USER, ttl=ttl, key=key)
        if drop:
            prefills.drop(prefill)
            prefills.drop(prefill)
        assert len(prefills) <= 9
    prefills.expired(100.0)
    assert (len(prefills), prefills._tenants) == (0, {})


def report(prompt, cached, service=0.0):
    return CallReport("c", service_s=service, prompt_tokens=prompt, cached_tokens=cached)


@pytest.mark.parametrize(
    ("found", "after_s", "saved"),
    [
        (1000, 5.0, 0.9),  # All of it was found.
        (1200, 5.0, 0.9),  # The turn's own tokens are no merit of the prefill.
        (550, 5.0, 0.45),  # Half of what was computed was lost again.
        (100, 5.0, 0.0),  # Only what was there before.
        (0, 5.0, 0.0),
        (1000, 0.2, 0.2),  # The turn came before so much could be saved.
    ],
)
def test_seconds_saved_are_those_of_tokens_computed_ahead_and_found(found, after_s, saved):
    prefills = Prefills()
    prefill = begin(prefills, USER)
    prefill.report = report(1000, 100, service=0.9)
    prefills.take(prefill, "m", {"messages": [USER, TOOL]}, after_s)
    assert prefill.saved_s(report(1300, found)) == pytest.approx(saved)


def test_nothing_was_saved_by_a_prefill_that_failed_or_was_not_used():
    prefills = Prefills()
    prefill = begin(prefills, USER)
    assert prefill.saved_s(report(10, 10)) == 0.0
    prefill.report = report(10, 0, service=1.0)
    assert prefill.saved_s(report(10, 10)) == 0.0
