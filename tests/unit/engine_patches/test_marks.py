"""What is known of blocks, and what a context has in common with the one before it."""

from __future__ import annotations

from engine_patches.marks import PINNED, Left, marked
from engine_patches.tags import Tag

NOBODY: frozenset[str] = frozenset()


def left(*contents: str) -> Left:
    found = Left()
    tags = [Tag.USER_QUERY] * len(contents)
    marks = [marked(content, "p", Tag.USER_QUERY, 0, NOBODY) for content in contents]
    found.extend(range(len(contents)), contents, tags, marks)
    return found


def test_a_tier_is_between_the_untagged_and_the_pinned():
    assert marked("c", "p", Tag.NONE, -4, NOBODY).tier == 0
    assert marked("c", "p", Tag.NONE, 2, NOBODY).tier == Tag.TOOL_OUTPUT
    assert marked("c", "p", Tag.USER_QUERY, -4, NOBODY).tier == Tag.RESPONSE
    assert marked("c", "p", Tag.USER_QUERY, 4, NOBODY).tier == Tag.PARTIAL_PREFILL < PINNED
    assert marked("c", "p", Tag.USER_QUERY, 0, frozenset("p")).tier == Tag.PARTIAL_PREFILL


def test_contexts_are_alike_up_to_the_first_difference_of_any_kind():
    known = left("a", "b", "c")
    numbers, contents, tags, marks = [0, 1, 2, 3], ["a", "b", "c", "d"], known.tags * 2, known.marks
    assert known.alike(numbers, contents, tags, [*marks, None]) == 3
    assert known.alike(numbers[:2], contents[:2], tags[:2], marks[:2]) == 2
    assert known.alike([0, 7, 2], contents[:3], tags[:3], marks) == 1
    assert known.alike(numbers, ["a", "b", "x", "d"], tags, marks) == 2
    assert known.alike(numbers, contents, [Tag.RESPONSE, *tags[1:]], marks) == 0
    other = marked("b", "", Tag.USER_QUERY, 0, NOBODY)
    assert known.alike(numbers, contents, tags, [marks[0], other, marks[2]]) == 1
    assert known.alike(numbers, contents, tags, [marks[0], None, marks[2]]) == 1


def test_what_is_forgotten_is_no_longer_alike():
    known = left("a", "b", "c")
    marks = list(known.marks)
    known.keep(1)
    assert known.alike([0, 1, 2], ["a", "b", "c"], [Tag.USER_QUERY] * 3, marks) == 1
    assert Left().alike([], [], [], []) == 0
