"""Metadata of blocks, and the tiers that follow from it."""

from __future__ import annotations

from weft_engine.block_metadata import PINNED, block_meta
from weft_engine.tags import Tag

NOBODY: frozenset[str] = frozenset()


def test_a_tier_is_between_the_untagged_and_the_pinned():
    assert block_meta("t", "p", Tag.NONE, -4, NOBODY).tier == 0
    assert block_meta("t", "p", Tag.NONE, 2, NOBODY).tier == Tag.TOOL_OUTPUT
    assert block_meta("t", "p", Tag.USER_QUERY, -4, NOBODY).tier == Tag.RESPONSE
    assert block_meta("t", "p", Tag.USER_QUERY, 4, NOBODY).tier == Tag.PARTIAL_PREFILL < PINNED
    assert block_meta("t", "p", Tag.USER_QUERY, 0, frozenset("p")).tier == Tag.PARTIAL_PREFILL


def test_a_home_is_a_tenant_and_a_tier():
    assert block_meta("t", "p", Tag.TOOL_OUTPUT, 1, NOBODY).home == ("t", Tag.USER_QUERY)


def test_equal_marks_are_one():
    one = block_meta("t", "p", Tag.USER_QUERY, 0, frozenset("p"))
    assert block_meta("t", "p", Tag.USER_QUERY, 0, frozenset("p")) is one
