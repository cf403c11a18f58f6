"""Tags of announced prefixes, serialized as text."""

from __future__ import annotations

import pytest
from weft_gateway.model.hint import OwnTag
from weft_gateway.model.tag import Tag
from weft_gateway.overlap.tag_codec import decode, encode
from weft_gateway.policies.hints_values import own_tag


def test_decoding_restores_every_kind_of_tag():
    given = [
        {"message": -1, "tag": "SYSTEM_PROMPT"},
        {"messages": [4, 7], "tag": "TOOL_OUTPUT"},
        {"start": 3, "end": 64, "tag": "PARTIAL_PREFILL"},
    ]
    tags = tuple(own_tag(f"tags[{n}]", value) for n, value in enumerate(given))
    assert tags[2].clamped
    assert decode(encode(tags)) == tags
    assert decode(encode(tags))[0].tag is Tag.SYSTEM_PROMPT


def test_no_tags_are_an_empty_text():
    assert encode(()) == ""
    assert decode("") == ()


@pytest.mark.parametrize("text", ["{", "3", "[3]", '[["a", 99]]', '[["a", 1, 2, 3, 4, 5, 6, 7]]'])
def test_invalid_text_has_no_tags(text):
    assert decode(text) == ()


def test_largest_tag_list_fits_into_a_row():
    most = 1_000_000_000
    tags = [
        OwnTag(f"tags[{n}]", Tag.SYSTEM_PROMPT, most, most, most, True, most) for n in range(64)
    ]
    assert len(encode(tags)) < 16_384
