"""The end of a JSON value, for every value and split."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.overlap.json_end import JsonEnd

SCALARS = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
CONTAINERS = st.lists(VALUES) | st.dictionaries(st.text(), VALUES) | st.text()


@given(CONTAINERS, st.text(), st.booleans())
def test_end_equals_that_of_a_json_parser(value, after, plain):
    written = json.dumps(value, ensure_ascii=plain)
    assert JsonEnd().feed("  " + written + after) == 2 + len(written)


@given(CONTAINERS)
def test_value_in_single_characters_ends_with_the_last(value):
    written = json.dumps(value)
    reader = JsonEnd()
    ends = [reader.feed(character) for character in written]
    assert ends == [-1] * (len(written) - 1) + [1]


@pytest.mark.parametrize("text", ["", " ", "1", "-2.5e3", "true", "null"])
def test_scalars_and_incomplete_values_have_no_end(text):
    assert JsonEnd().feed(text) == -1


def test_split_after_a_backslash_does_not_matter():
    reader = JsonEnd()
    assert reader.feed('{"a": "\\') == -1
    assert reader.feed('"}') == -1, "the quote was escaped: the brace is in the string"
    assert reader.feed('"}') == 2


def test_unmatched_closing_bracket_ends_the_value():
    assert JsonEnd().feed("]]]") == 1
