"""Programs of calls."""

from __future__ import annotations

import pytest

from loadgen.schema import TAGS, TraceCall, TraceProgram


def test_a_call_waits_for_the_one_before_it_unless_told_otherwise():
    assert TraceCall().needs(0) == ()
    assert TraceCall().needs(4) == (3,)
    assert TraceCall(after=()).needs(4) == ()
    assert TraceCall(after=(0, 2)).needs(4) == (0, 2)


@pytest.mark.parametrize("after", [(1,), (2,), (-1,)])
def test_a_call_cannot_wait_for_itself_or_for_a_later_one(after):
    with pytest.raises(ValueError, match="call 1 of p"):
        TraceProgram("p", (TraceCall(), TraceCall(after=after), TraceCall()))


def test_tags_are_numbered_as_in_the_engine():
    from engine_patches.tags import Tag

    assert {name: Tag[name] for name in TAGS} == TAGS
