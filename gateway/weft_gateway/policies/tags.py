"""From a prompt's sections to the tags that an engine takes (Sutradhara 4.3). Pure.

Roles give tags. Then a stretch is kept at least as long as anything after it in the same prompt: a
prefix cache reaches no block behind one that is gone, so a tool output between two questions is
worth what the second question is worth. In the paper's prompts (system, query, tool outputs,
response) this changes nothing; in longer dialogues it is what makes the order hold. What a client
says of its own messages counts as it was said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_gateway.model.hint import OwnTag
from weft_gateway.model.tag import Tag
from weft_gateway.policies.tags_sections import Section

Spans = list[tuple[int, Tag]]

# Beyond any prompt; the engine cuts tags where the prompt ends.
BEYOND: Final = 1 << 30


def by_role(sections: Sequence[Section], ends: Sequence[float]) -> Spans:
    """Sections with their roles' tags, as spans of tokens: (end, tag), neighbours of one tag
    joined. ends: the token before which each section ends, never falling."""
    return _joined([(round(end), section.tag) for section, end in zip(sections, ends, strict=True)])


def as_reached(sections: Sequence[Section], ends: Sequence[float]) -> Spans:
    """The same, each section with the highest tag from it to the end: what a prefix is worth."""
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
    """The value of `weft_tags`, a flat tuple of ends and tags, and the fates of the client's tags.

    The last span reaches beyond the prompt, because the engine knows where that ends, and cuts it
    there. A prompt without sections is one USER_QUERY: nobody knows better.
    """
    if len(sections) == 1 and not own:  # A first turn, as classifiers send them by thousands.
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
    """The token before which a message ends; None for one that is not there."""
    found = None
    for section, end in zip(sections, ends, strict=True):
        if section.message == message:
            found = round(end)
    return found


def _place(
    tag: OwnTag, sections: Sequence[Section], ends: Sequence[float]
) -> tuple[int, int] | str:
    """The tokens that a client's tag is about, or why there are none."""
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
    """The spans with one more laid over them."""
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
    """Neighbours of one tag made one, and what has no token left out."""
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
