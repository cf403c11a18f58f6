"""Programs of calls."""

from __future__ import annotations

import pytest
from weft_bench.workloads.schema import TAGS, TraceCall, TraceProgram


def test_call_waits_for_the_previous_call_by_default():
    assert TraceCall().needs(0) == ()
    assert TraceCall().needs(4) == (3,)
    assert TraceCall(after=()).needs(4) == ()
    assert TraceCall(after=(0, 2)).needs(4) == (0, 2)


@pytest.mark.parametrize("after", [(1,), (2,), (-1,)])
def test_a_call_cannot_wait_for_itself_or_for_a_later_one(after):
    with pytest.raises(ValueError, match="call 1 of p"):
        TraceProgram("p", (TraceCall(), TraceCall(after=after), TraceCall()))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gap_s", -0.5),
        ("gap_s", float("nan")),
        ("tool_s", (1.0, float("inf"))),
        ("output_tokens", -1),
        ("output_bytes", -1),
    ],
)
def test_negative_lengths_and_times_are_refused(field, value):
    with pytest.raises(ValueError, match=f"{field} must be "):
        TraceCall(**{field: value})


def test_infinite_arrival_is_refused():
    with pytest.raises(ValueError, match="arrival_s"):
        TraceProgram("p", (), float("nan"))


def test_tags_are_numbered_as_in_the_engine():
    from weft_engine.tags import Tag

    assert {name: Tag[name] for name in TAGS} == TAGS
