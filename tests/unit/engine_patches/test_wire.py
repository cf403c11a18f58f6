"""What the gateway and the engine say to each other survives the way."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_patches.wire import CallContext, CallReport


@given(st.text(max_size=20), st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_context_comes_back_from_flat_xargs(program, service, waiting):
    context = CallContext("c1", program, service, waiting, 5.0)
    xargs = json.loads(json.dumps(context.to_xargs()))
    assert all(isinstance(value, str | int | float) for value in xargs.values())
    assert CallContext.from_xargs(xargs) == context


@pytest.mark.parametrize("xargs", [None, {}, {"other": 1}])
def test_what_is_not_a_context_is_none(xargs):
    assert CallContext.from_xargs(xargs) is None


NUMBERS = [
    "weft_service", "weft_waiting", "weft_arrival", "weft_critical_path", "weft_budget",
    "weft_cost", "weft_remaining",
]  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    "value", ["5", "x", -4, float("nan"), float("inf"), 1e300, 10**400, True, [1], {}]
)
def test_what_is_no_number_in_range_counts_as_absent_and_is_named(name, value):
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


def test_how_far_a_pin_reaches_comes_back():
    context = CallContext("c", "p", retain_s=60.0, retain_tokens=512)
    assert CallContext.from_xargs(context.to_xargs()) == context


@pytest.mark.parametrize("reach", [-1, 1.5, "512", True, [1]])
def test_nothing_is_pinned_where_nobody_can_tell_how_far(reach):
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


def test_unknown_fields_of_a_newer_engine_are_ignored():
    assert CallReport.from_json('{"call":"c","from_the_future":1}').call == "c"


@pytest.mark.parametrize("text", ["[]", "{}", "nonsense", '{"call":1}'])
def test_what_is_not_a_report_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011
        CallReport.from_json(text)


def test_the_tenant_and_its_weight_reach_the_engine():
    context = CallContext("c", "p", tenant="a1b2", weight=2.5)
    assert CallContext.from_xargs(json.loads(json.dumps(context.to_xargs()))) == context


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf, "2", True])
def test_a_weight_that_is_not_positive_counts_as_one(weight):
    context = CallContext.from_xargs({"weft_call": "c", "weft_weight": weight})
    assert context is not None
    assert context.weight == 1.0
    assert context.ignored == ("weft_weight",)
