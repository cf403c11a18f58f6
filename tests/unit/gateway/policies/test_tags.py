"""Conversion of sections and their ends to the engine's tags."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft_engine.tags import TagSpans
from weft_gateway.model.hint import OwnTag
from weft_gateway.model.tag import Tag
from weft_gateway.policies.tags import BEYOND, end_of, wire_tags
from weft_gateway.policies.tags_sections import Section, sections

S, U, T, R = Tag.SYSTEM_PROMPT, Tag.USER_QUERY, Tag.TOOL_OUTPUT, Tag.RESPONSE
ROLES = {S: "system", U: "user", T: "tool", R: "assistant"}


def prompt(*tags: Tag) -> list[Section]:
    return sections({"messages": [{"role": ROLES[tag], "content": "x"} for tag in tags]})


def test_prompt_of_the_paper_keeps_its_roles() -> None:
    """The parts in the order of Sutradhara, section 4.3, have descending tags."""
    tags, _ = wire_tags(prompt(S, U, T, R), [10, 20, 30, 40])
    assert tags == (10, S, 20, U, 30, T, BEYOND, R)


def test_each_span_has_at_least_the_tag_of_later_spans() -> None:
    tags, _ = wire_tags(prompt(S, U, R, T, R, U, R, T), [10, 20, 30, 40, 50, 60, 70, 80])
    assert tags == (10, S, 60, U, BEYOND, T)


def test_prompt_of_unknown_structure_is_a_query() -> None:
    assert wire_tags([], []) == ((BEYOND, U), ())


def test_prompt_of_one_message_has_its_tag() -> None:
    for tag in (S, U, T, R):
        assert wire_tags(prompt(tag), [0.4]) == ((BEYOND, tag), ())


def test_client_tags_override_roles() -> None:
    found = prompt(S, U, R, T, U)
    ends = [10.0, 20.0, 30.0, 40.0, 50.0]
    own = (
        OwnTag("a", T, message=1),
        OwnTag("b", Tag.NONE, start=5, end=8, clamped=True),
        OwnTag("c", R, message=4),
        OwnTag("d", R, message=7),
        OwnTag("e", R, message=-1),
    )
    tags, fates = wire_tags(found, ends, own)
    assert tags == (5, S, 8, Tag.NONE, 10, S, 20, T, 40, U, BEYOND, R)
    assert fates == (
        "a=applied", "b=applied, clamped", "c=applied", "d=ignored: there is no message 7",
        "e=ignored: there is no message -1",
    )  # fmt: skip


def test_empty_message_cannot_be_tagged() -> None:
    _, fates = wire_tags(prompt(U, R, U), [10, 10, 20], (OwnTag("a", S, message=1),))
    assert fates == ("a=ignored: the message is too short",)


def test_message_ends_with_its_last_section() -> None:
    part = {"type": "tool_result", "content": "seen"}
    content = [part, {"type": "text", "text": "and"}]
    body = {"messages": [{"role": "user", "content": content}, {"role": "assistant"}]}
    assert end_of(0, sections(body), [10.0, 20.0, 30.0]) == 20
    assert end_of(5, sections(body), [10.0, 20.0, 30.0]) is None
    tags, _ = wire_tags(sections(body), [10.0, 20.0, 30.0], (OwnTag("a", S, message=0),))
    assert tags == (20, S, BEYOND, R)


PLACES = st.integers(-1, 9) | st.integers(0, BEYOND)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([S, U, T, R]), st.floats(0, 300)), max_size=8),
    st.lists(
        st.builds(lambda m, t: OwnTag("m", t, message=m), PLACES, st.sampled_from(Tag))
        | st.builds(
            lambda a, n, t: OwnTag("s", t, None, a, a + n),
            PLACES.filter(lambda p: p >= 0), st.integers(1, 400), st.sampled_from(Tag),
        ),
        max_size=6,
    ),
)  # fmt: skip
def test_engine_parses_all_generated_tags(
    parts: list[tuple[Tag, float]], own: list[OwnTag]
) -> None:
    found = prompt(*[tag for tag, _ in parts])
    ends, end = [], 0.0
    for _, size in parts:
        end += size
        ends.append(end)
    tags, fates = wire_tags(found, ends, own)
    spans = TagSpans.parse(list(tags))
    assert spans.ends[-1] >= BEYOND or own
    assert len(fates) == len(own)


@pytest.mark.parametrize(("start", "end"), [(0, 5), (3, 25), (20, 30), (29, 31), (0, BEYOND)])
def test_client_span_covers_exactly_its_tokens(start: int, end: int) -> None:
    found, ends = prompt(S, U, T), [10.0, 20.0, 30.0]
    plain = TagSpans.parse(list(wire_tags(found, ends)[0])).of_blocks(40, 1)
    tags, _ = wire_tags(found, ends, (OwnTag("a", Tag.NONE, start=start, end=end),))
    laid = TagSpans.parse(list(tags)).of_blocks(40, 1)
    wanted = [Tag.NONE if start <= n < end else tag for n, tag in enumerate(plain)]
    assert [int(tag) for tag in laid] == [int(tag) for tag in wanted]
