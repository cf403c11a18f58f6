"""Prefill handles: matching, serialization and saved time."""

from __future__ import annotations

from itertools import count

import msgspec
import orjson
import pytest
from weft_engine.wire import CallReport
from weft_gateway.model import ProgramAttribute, ProgramKey
from weft_gateway.overlap.prefill import MAX_TTL_S, Prefill, PrefillError, PrefillState, announced
from weft_gateway.programs.rules import check_attribute

_ids = count()
KEY = ProgramKey("t", "p")
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Go."}
TOOL = {"role": "tool", "tool_call_id": "c", "content": "42"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def begin(*messages, now=0.0, ttl=10.0, key=KEY, **body):
    prefix = announced({"messages": list(messages), **body})
    return Prefill.fresh(f"pf_{next(_ids)}", key, "m", prefix, "r0", now, ttl)


def test_turn_with_the_announced_prefix_claims_the_prefill():
    prefill = begin(SYSTEM, USER, tools=TOOLS)
    reordered = {"content": "Be brief.", "role": "system"}
    prefill.take("m", {"messages": [reordered, USER, TOOL], "tools": TOOLS}, 1.0)
    assert prefill.taken_s == 1.0


def test_empty_members_may_be_omitted():
    prefill = begin({"role": "assistant", "content": None, "tool_calls": [1]})
    turn = {"messages": [{"role": "assistant", "content": "", "tool_calls": [1]}, TOOL]}
    prefill.take("m", turn, 1.0)
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
def test_different_prefix_is_a_mismatch_error(model, body, reason):
    prefill = begin(SYSTEM, USER, tools=TOOLS)
    with pytest.raises(PrefillError, match=reason) as refused:
        prefill.take(model, body, 1.0)
    assert refused.value.code == "prefill_prefix_mismatch"
    assert prefill.taken_s == 0.0


@pytest.mark.parametrize("messages", [None, [], "text", {"role": "user"}, 3])
def test_prefill_without_messages_is_refused(messages):
    with pytest.raises(PrefillError):
        announced({"messages": messages})


def test_too_deep_messages_are_refused():
    deep: object = "x"
    for _ in range(400):
        deep = [deep]
    with pytest.raises(PrefillError):
        announced({"messages": [deep]})


def test_prefill_expires_after_a_bounded_time():
    assert begin(USER, now=5.0, ttl=10.0).expires_s == 15.0
    assert begin(USER, ttl=1e9).expires_s == MAX_TTL_S


def test_serialized_prefill_is_equal():
    prefill = begin(SYSTEM, USER, now=3.25, tools=TOOLS, key=ProgramKey("t", "日\n"))
    prefill.by_itself = True
    assert Prefill.from_fields(orjson.loads(orjson.dumps(prefill.to_fields()))) == prefill
    turn = {"messages": [SYSTEM, USER, TOOL], "tools": TOOLS}
    prefill.take("m", turn, 4.5)
    prefill.state, prefill.detail = PrefillState.DONE, "x"
    prefill.report = report(100, 7, service=0.25)
    again = Prefill.from_fields(orjson.loads(orjson.dumps(prefill.to_fields())))
    assert again == prefill
    again.take("m", turn, 9.0)
    assert again.taken_s == 4.5
    assert again.to_json() == prefill.to_json()


def test_the_form_of_another_release_is_refused():
    fields = begin(SYSTEM, USER).to_fields()
    for wrong in ({}, {**fields, "state": "new"}, {**fields, "prefix": 3}):
        with pytest.raises(msgspec.ValidationError):
            Prefill.from_fields(wrong)


def test_the_form_of_a_long_announcement_fits_an_attribute():
    prefill = begin(*[USER] * 5000)
    prefill.state, prefill.detail, prefill.report = PrefillState.FAILED, "\0" * 300, report(1, 1)
    check_attribute(ProgramAttribute("x", orjson.dumps(prefill.to_fields()).decode(), 1.0))


def report(prompt, cached, service=0.0):
    return CallReport("c", service_s=service, prompt_tokens=prompt, cached_tokens=cached)


@pytest.mark.parametrize(
    ("found", "after_s", "saved"),
    [
        (1000, 5.0, 0.9),  # All computed tokens were found.
        (1200, 5.0, 0.9),  # Tokens beyond the prefill's prompt do not count.
        (550, 5.0, 0.45),  # Half of the computed tokens were evicted.
        (100, 5.0, 0.0),  # Only tokens that were cached before.
        (0, 5.0, 0.0),
        (1000, 0.2, 0.2),  # The turn began after 0.2 s, so no more was saved.
    ],
)
def test_saved_time_is_that_of_prefilled_and_found_tokens(found, after_s, saved):
    prefill = begin(USER)
    prefill.report = report(1000, 100, service=0.9)
    prefill.take("m", {"messages": [USER, TOOL]}, after_s)
    assert prefill.saved_s(report(1300, found)) == pytest.approx(saved)


def test_failed_or_unused_prefill_saves_nothing():
    prefill = begin(USER)
    assert prefill.saved_s(report(10, 10)) == 0.0
    prefill.report = report(10, 0, service=1.0)
    assert prefill.saved_s(report(10, 10)) == 0.0
