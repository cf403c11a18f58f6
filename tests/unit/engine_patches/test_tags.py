"""Spans of a prompt, and the tags of its blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.tags import Tag, TagSpans, flatten


def test_the_order_of_eviction_is_the_papers():
    names = ["NONE", "RESPONSE", "TOOL_OUTPUT", "USER_QUERY", "SYSTEM_PROMPT", "PARTIAL_PREFILL"]
    assert [tag.name for tag in sorted(Tag)] == names


@st.composite
def spans(draw):
    ends = draw(st.lists(st.integers(1, 200), min_size=1, max_size=6, unique=True))
    tags = draw(st.lists(st.sampled_from(Tag), min_size=len(ends), max_size=len(ends)))
    return list(zip(sorted(ends), tags, strict=True))


@given(spans(), st.integers(0, 20), st.integers(1, 32))
def test_a_block_has_the_highest_tag_of_its_tokens(given_spans, count, size):
    def token(position):
        return next((tag for end, tag in given_spans if position < end), Tag.RESPONSE)

    expected = [max(token(p) for p in range(b * size, (b + 1) * size)) for b in range(count)]
    assert TagSpans.parse(flatten(given_spans)).of_blocks(count, size) == expected


@given(spans(), st.integers(1, 220), st.integers(0, 20), st.integers(1, 32))
def test_generated_tokens_are_responses_whatever_the_spans_are(given_spans, prompt, count, size):
    def token(position):
        told = next((tag for end, tag in given_spans if position < end), Tag.RESPONSE)
        return told if position < prompt else Tag.RESPONSE

    expected = [max(token(p) for p in range(b * size, (b + 1) * size)) for b in range(count)]
    inside = TagSpans.parse(flatten(given_spans)).within(prompt)
    assert inside.of_blocks(count, size) == expected


def test_without_spans_nothing_is_known():
    assert TagSpans().of_blocks(2, 16) == [Tag.NONE, Tag.NONE]


@pytest.mark.parametrize(
    "values",
    [None, "x", 5, [], [1], [5, 1, 5, 2], [5, 1, 3, 2], [0, 1], [-4, 1], [5, 9], [5, -1],
     [5.0, 1], ["5", 1], [True, 1], [5, 1, 9]],
)  # fmt: skip
def test_invalid_lists_of_spans_are_refused(values):
    with pytest.raises(ValueError):  # noqa: PT011
        TagSpans.parse(values)


def test_a_span_that_reaches_far_beyond_the_prompt_costs_no_more_than_its_blocks():
    """As of a gateway that does not know where a prompt ends: 2^50 tokens would fill any memory."""
    spans = TagSpans.parse([20, int(Tag.SYSTEM_PROMPT), 1 << 50, int(Tag.USER_QUERY)])
    assert spans.of_blocks(3, 16) == [Tag.SYSTEM_PROMPT, Tag.SYSTEM_PROMPT, Tag.USER_QUERY]
    assert spans.of_blocks(1, 16) == [Tag.SYSTEM_PROMPT]
    assert spans.of_blocks(0, 16) == []
