"""Converts a prompt's sections to the tags of an engine (Sutradhara 4.3). Pure.

Roles determine tags. Then each section gets at least the highest tag of the sections after it: a
prefix cache reaches no block behind an evicted one, so a tool output between two questions is worth
as much as the second question. In the paper's prompts (system, query, tool outputs, response) this
changes nothing; in longer dialogues it keeps the order of eviction consistent. A client's own tags
are applied unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_gateway.model.hint import OwnTag
from weft_gateway.model.tag import Tag
from weft_gateway.policies.tags_sections import Section

Spans = list[tuple[int, Tag]]

# Beyond any prompt. The engine cuts tags at the prompt's end.
BEYOND: Final = 1 << 30


def as_reached(sections: Sequence[Section], ends: Sequence[float]) -> Spans:
    """Return spans of tokens: (end, tag). Each section has the highest tag from it to the end: the
    worth of a prefix. ends: the token after each section, non-decreasing.
    """
    spans: Spans = []
    highest = -1
    for number in range(len(sections) - 1, -1, -1):
        tag = sections[number].tag
        if tag > highest:
            highest = tag
            spans.append((round(ends[number]), tag))
    spans.reverse()
    return _joined(spans)


def wire_tags(
    sections: Sequence[Section], ends: Sequence[float], own: Sequence[OwnTag] = ()
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the value of `weft_tags`, a flat tuple of ends and tags, and the fates of the client's
    tags.

    The last span reaches beyond the prompt, because only the engine knows the exact length, and the
    engine cuts it there. A prompt without sections is one USER_QUERY, the default.
    """
    if len(sections) == 1 and not own:  # A first turn. Classifiers send thousands of these.
        return (BEYOND, int(sections[0].tag)), ()
    if not sections:
        spans: Spans = [(BEYOND, Tag.USER_QUERY)]
    else:
        spans = as_reached(sections, [*ends[:-1], BEYOND])
    fates: list[str] = []
    for tag in own:
        place = _place(tag, sections, ends)
        if isinstance(place, str):
            fates.append(f"{tag.name}=ignored: {place}")
        else:
            spans = _overlaid(spans, *place, tag.tag)
            fates.append(f"{tag.name}=applied{', clamped' if tag.clamped else ''}")
    return tuple([number for end, tag in spans for number in (end, int(tag))]), tuple(fates)


def end_of(message: int, sections: Sequence[Section], ends: Sequence[float]) -> int | None:
    """Return the token after a message; None if the message does not exist."""
    found = None
    for section, end in zip(sections, ends, strict=True):
        if section.message == message:
            found = round(end)
    return found


def _place(
    tag: OwnTag, sections: Sequence[Section], ends: Sequence[float]
) -> tuple[int, int] | str:
    """Return the tokens of a client's tag, or the reason why it has no tokens."""
    if tag.message is None:
        return tag.start, tag.end
    first, after = tag.message, tag.message + tag.messages
    wanted = [n for n, section in enumerate(sections) if first <= section.message < after]
    if not wanted:
        return f"there is no message {first}"
    start = round(ends[wanted[0] - 1]) if wanted[0] else 0
    end = BEYOND if wanted[-1] == len(sections) - 1 else round(ends[wanted[-1]])
    return (start, end) if start < end else "the message is too short"


def _overlaid(spans: Spans, start: int, end: int, tag: Tag) -> Spans:
    """Return the spans with one more span laid over them."""
    laid: Spans = []
    before = 0
    for reach, kept in spans:
        if before < min(reach, start):
            laid.append((min(reach, start), kept))
        if before <= start < reach:
            laid.append((min(end, BEYOND), tag))
        if reach > end:
            laid.append((reach, kept))
        before = reach
    return _joined(laid)


def _joined(spans: Spans) -> Spans:
    """Join neighbours with one tag, and drop empty spans."""
    joined: Spans = []
    before = 0
    for end, tag in spans:
        if end <= before:
            continue
        if joined and joined[-1][1] is tag:
            joined.pop()
        joined.append((end, tag))
        before = end
    return joined
