"""Messages between the gateway and the engine survive the round trip."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.wire import CallContext, CallReport


@given(st.text(max_size=20), st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_context_comes_back_from_flat_xargs(program, service, waiting):
    context = CallContext("c1", program, service, waiting, 5.0)
    xargs = json.loads(json.dumps(context.to_xargs()))
    assert all(isinstance(value, str | int | float) for value in xargs.values())
    assert CallContext.from_xargs(xargs) == context


@pytest.mark.parametrize("xargs", [None, {}, {"other": 1}])
def test_invalid_contexts_are_none(xargs):
    assert CallContext.from_xargs(xargs) is None


NUMBERS = [
    "weft_service", "weft_waiting", "weft_arrival", "weft_critical_path", "weft_budget",
    "weft_cost", "weft_path", "weft_deadline",
]  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    "value", ["5", "x", -4, float("nan"), float("inf"), 1e300, 10**400, True, [1], {}]
)
def test_numbers_out_of_range_count_as_absent_and_are_named(name, value):
    told = CallContext.from_xargs({"weft_call": "c", "weft_program": "p", name: value})
    assert told == CallContext("c", "p", ignored=(name,))


@given(st.dictionaries(st.sampled_from(NUMBERS), st.floats(0, 1e12)))
def test_every_number_in_range_is_taken(numbers):
    told = CallContext.from_xargs({"weft_call": "c", "weft_program": "p", **numbers})
    assert told.ignored == ()
    assert told.to_xargs() | numbers == told.to_xargs()


@given(st.dictionaries(st.text(max_size=12) | st.sampled_from(NUMBERS), st.none() | st.text()))
def test_nothing_that_a_client_can_send_raises(xargs):
    CallContext.from_xargs({**xargs, "weft_call": 5})


@given(st.floats(-1e12, 1e12))
def test_a_target_that_has_passed_comes_back(left):
    context = CallContext("c", "p", left_s=left)
    assert CallContext.from_xargs(json.loads(json.dumps(context.to_xargs()))) == context


@pytest.mark.parametrize("value", ["5", float("nan"), float("inf"), 1e13, -1e13, True, [1]])
def test_a_time_left_out_of_range_counts_as_absent(value):
    told = CallContext.from_xargs({"weft_call": "c", "weft_program": "p", "weft_left": value})
    assert told == CallContext("c", "p", ignored=("weft_left",))


def test_how_far_a_pin_reaches_comes_back():
    context = CallContext("c", "p", retain_s=60.0, retain_tokens=512)
    assert CallContext.from_xargs(context.to_xargs()) == context


@pytest.mark.parametrize("reach", [-1, 1.5, "512", True, [1]])
def test_nothing_is_pinned_if_the_reach_is_invalid(reach):
    xargs = {"weft_call": "c", "weft_program": "p", "weft_retain": 60.0}
    told = CallContext.from_xargs(xargs | {"weft_retain_tokens": reach})
    assert told == CallContext("c", "p", ignored=("weft_retain_tokens",))


def test_a_report_is_one_ascii_line_and_comes_back():
    report = CallReport(
        "ü", 1.5, 0.25, 1, 10, 5, 3, (2, 0), "plas", hints=("weft_cost=ignored: x",)
    )
    text = report.to_json()
    assert text.isascii()
    assert "\n" not in text
    assert CallReport.from_json(text) == report


def test_no_field_of_a_report_is_lost():
    others = {
        "call": "c", "policy": "plas", "finished": False, "queue_path": (1,), "hints": ("h",),
        "evicted_by": "p",
    }  # fmt: skip
    numbers = {f.name: n for n, f in enumerate(fields(CallReport), 1) if f.name not in others}
    report = CallReport(**others, **numbers)
    assert CallReport.from_json(report.to_json()) == report


def test_a_report_of_an_older_engine_without_waits_for_memory_is_valid():
    old = json.loads(CallReport("c", 1.5, 0.25, prompt_tokens=10).to_json())
    for name in ("memory_wait_s", "memory_tokens", "programs_ahead"):
        del old[name]
    assert read(old) == CallReport("c", 1.5, 0.25, prompt_tokens=10)


def test_unknown_fields_of_a_newer_engine_are_ignored():
    assert CallReport.from_json('{"call":"c","from_the_future":1}').call == "c"


@pytest.mark.parametrize("text", ["[]", "{}", "nonsense", '{"call":1}'])
def test_invalid_reports_are_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011
        CallReport.from_json(text)


def read(fields):
    return CallReport.from_json(json.dumps(fields))


SECONDS = ["service_s", "waiting_s", "memory_wait_s"]
COUNTS = [
    "preemptions", "prompt_tokens", "cached_tokens", "output_tokens", "recomputed_tokens",
    "blocks_swapped_out", "blocks_swapped_in", "memory_tokens", "programs_ahead",
]  # fmt: skip
NOT_A_NUMBER = [None, "5", -1, -0.5, math.nan, math.inf, 1e300, 10**400, True, [1], {}]


@pytest.mark.parametrize("value", NOT_A_NUMBER)
@pytest.mark.parametrize("name", SECONDS + COUNTS)
def test_a_report_with_a_number_that_cannot_be_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        read({"call": "c", name: value})


@pytest.mark.parametrize("name", COUNTS)
def test_there_are_no_parts_of_a_token(name):
    with pytest.raises(ValueError, match=name):
        read({"call": "c", name: 1.5})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queue_path", 1),
        ("queue_path", "012"),
        ("queue_path", [0, "1"]),
        ("queue_path", [0, [1]]),
        ("queue_path", [True]),
        ("queue_path", [-1]),
        ("queue_path", {"0": 1}),
        ("policy", 7),
        ("policy", None),
        ("finished", 1),
        ("finished", "yes"),
        ("hints", "weft_cost"),
        ("hints", [1]),
        ("hints", {"a": "b"}),
        ("call", None),
        ("call", ["c"]),
    ],
)
def test_a_report_with_a_field_of_another_type_is_refused(name, value):
    with pytest.raises(ValueError, match=r"report|" + name):
        read({"call": "c", name: value})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from([*SECONDS, *COUNTS, "queue_path", "policy", "hints"]),
                    json_values)
)  # fmt: skip
def test_a_report_is_what_it_says_it_is_or_none(fields):
    try:
        report = read({"call": "c", **fields})
    except ValueError:
        return
    assert all(0 <= getattr(report, name) < math.inf for name in SECONDS + COUNTS)
    assert all(type(getattr(report, name)) is float for name in SECONDS)
    assert all(type(getattr(report, name)) is int for name in COUNTS)
    assert CallReport.from_json(report.to_json()) == report


def test_the_tenant_and_its_weight_reach_the_engine():
    context = CallContext("c", "p", tenant="a1b2", weight=2.5)
    assert CallContext.from_xargs(json.loads(json.dumps(context.to_xargs()))) == context


@pytest.mark.parametrize("weight", [0, -1, 1e-9, 1e9, math.nan, math.inf, "2", True])
def test_a_weight_that_no_key_can_have_counts_as_one(weight):
    context = CallContext.from_xargs({"weft_call": "c", "weft_weight": weight})
    assert context is not None
    assert context.weight == 1.0
    assert context.ignored == ("weft_weight",)
