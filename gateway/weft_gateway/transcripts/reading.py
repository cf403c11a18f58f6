"""Where the messages of a body are, and the body without those that are known. Pure."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from weft_gateway.model import ProgramKey
from weft_gateway.transcripts.size import cost_of
from weft_gateway.transcripts.transcript import Known, Mark, Transcript, numbered

# The lists of messages of all APIs.
_LISTS: Final = ("messages", "input")
MARK: Final = b'"cache_control"'
_LEADING: Final = ("system", "developer")
# The name of a member, with what is before and behind it. No API has longer ones.
_NAME: Final = re.compile(rb'[\s,{]*+"(?:[^"\\]|\\.){0,128}+"\s*+:\s*+')
_GAP: Final = re.compile(rb"[ \t\r\n,]*")
_END: Final = re.compile(rb"[ \t\r\n]*\]")
# An object, as all known messages are: what may follow is the same.
_STANDS: Final = b"{}"
_split: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
# A body with more marks is read as a whole each time.
_MOST_MARKS: Final = 64
_MARK_LETTERS: Final = 16
# If the tools change, known messages are parsed again at once: they cost at most this.
_MOST_COST: Final = 16 << 20


@dataclass(slots=True, eq=False)
class Reading:
    """What reading a call's body has found.

    raw: its bytes, until the call ends. fresh: the text that was read, with an empty object in
    place of `known`. name: of the list of messages, which is at `begin` to `end`. first: index of
    the first message behind the leading system messages, which end at `head`. ends: of the messages
    behind those, without known ones. digests: of the body's beginnings. edited: other members have
    changed since. start, points: lineage's point before the message `first`, and by index of a
    message the point after it and whether it is the model's; None if lineage was not asked. pieces,
    lines: fingerprints of the text.
    """

    raw: bytes
    fresh: bytes
    name: str
    begin: int
    end: int
    first: int
    head: int
    ends: Sequence[int]
    digests: Sequence[int]
    known: Known | None = None
    edited: bool = False
    start: int = 0
    points: Mapping[int, tuple[int, int]] | None = None
    pieces: array[int] | None = None
    lines: array[int] | None = None

    @property
    def messages(self) -> memoryview:
        """The list of messages, as in the body."""
        return memoryview(self.raw)[self.begin : self.end]

    def whole(self) -> Reading:
        """Return the same without known messages: all have been parsed."""
        if self.known is None:
            return self
        ends = [*self.known.of.ends[: self.known.count], *self.ends]
        return replace(self, fresh=self.raw, ends=ends, known=None, points=None, pieces=None)

    def transcript(
        self,
        key: ProgramKey,
        messages: list[Any],
        begun: tuple[int, float],
        counts: Mapping[int, tuple[int, float, int]],
        marks: Sequence[Mark],
    ) -> Transcript | None:
        """Return the transcript of the whole body: that of the known messages with further ones, if
        it is the same program's and no other call has added some. It ends before the messages that
        would cost too much. None if there is nothing to keep.

        key: the program. messages: parsed. begun: hash and tokens of the prompt before the first
        message. counts: by index of a message: hash and tokens of the prompt up to its end, and its
        highest tag.
        """
        if not self.ends or len(marks) > _MOST_MARKS:
            return None
        known = self.known
        if known is None:
            end = self.head
            points = None if self.points is None else array("Q")
            found = Transcript(
                self.first, self.name, self.begin, self.head, hash(self.raw[: self.head]),
                begun[0], self.start, key, points=points,
            )  # fmt: skip
        else:
            end = known.reach
            found = known.of
            others = found.key != key or (found.points is None) != (self.points is None)
            if others or len(found) > known.count:
                found = found.beginning(known.count)
                found.key = key
            if self.points is None:
                found.points = None
        parsed = dict(numbered(messages))
        index = self.first + len(found)
        cost = found.costs[-1] if found.costs else 0
        chain, tokens = (found.chains[-1], found.tokens[-1]) if found.chains else begun
        after: Mapping[int, tuple[int, int]] = self.points or {}
        has_marks = MARK in self.fresh
        for stop in self.ends:
            piece = self.raw[end:stop]
            cost += cost_of(parsed[index], piece)
            if cost > _MOST_COST:
                break
            if has_marks and MARK in piece:
                found.marked.append(len(found))
            tag = 0
            if (counted := counts.get(index)) is not None:
                chain, tokens, tag = counted
            point, model = after.get(index, (0, 0))
            found.ends.append(stop)
            found.digests.append(hash(piece))
            found.costs.append(cost)
            found.chains.append(chain)
            found.tokens.append(tokens)
            found.tags.append(tag)
            found.models.append(model)
            if found.points is not None:
                found.points.append(point)
            index += 1
            end = stop
        found.marks = tuple(marks)
        if self.pieces is not None and self.lines is not None:
            found.pieces, found.lines = self.pieces, self.lines
        return found if found.ends else None


def read(
    raw: bytes, body: dict[str, Any], members: Mapping[str, msgspec.Raw], digests: Sequence[int]
) -> Reading | None:
    """Return where the messages of a parsed body are; None if it has no list of messages, or a
    long name before it. members: unparsed, of the whole body.
    """
    at = 0
    for name, piece in members.items():
        found = _NAME.match(raw, at)
        if found is None:
            return None
        at = found.end()
        if name in _LISTS and type(body.get(name)) is list:
            return _reading(raw, body[name], name, at, piece, digests)
        at += len(piece)
    return None


def _reading(
    raw: bytes,
    messages: list[Any],
    name: str,
    begin: int,
    piece: msgspec.Raw,
    digests: Sequence[int],
) -> Reading:
    ends = _ends(raw, begin, piece)
    first = 0
    while first < len(messages) and _leads(messages[first]):
        first += 1
    count = first
    # Only an object has an end that no following byte can move.
    while count < len(messages) and type(messages[count]) is dict:
        count += 1
    head = ends[first - 1] if first else begin + 1
    end = begin + len(piece)
    return Reading(raw, raw, name, begin, end, first, head, ends[first:count], digests)


def without(known: Known) -> bytes:
    """Return a body with an empty object in place of its known messages. It is valid JSON if the
    body is, and has the same other members and messages.
    """
    of = known.of
    comma = b"," if of.first else b""
    return b"".join((known.raw[: of.head], comma, _STANDS, known.raw[known.reach :]))


def read_fresh(
    known: Known,
    fresh: bytes,
    body: dict[str, Any],
    members: Mapping[str, msgspec.Raw],
    digests: Sequence[int],
) -> Reading:
    """Put known messages into a body, and return where its other messages are. fresh: the text of
    the body `without` the known messages. members: unparsed.
    """
    of = known.of
    messages, piece = body[of.name], members[of.name]
    shift = len(known.raw) - len(fresh)
    ends = _ends(fresh, of.begin, piece)
    messages[of.first] = known
    count = of.first + 1
    while count < len(messages) and type(messages[count]) is dict:
        count += 1
    return Reading(
        known.raw,
        fresh,
        of.name,
        of.begin,
        of.begin + len(piece) + shift,
        of.first,
        of.head,
        [end + shift for end in ends[of.first + 1 : count]],
        digests,
        known,
    )


def ends_there(raw: bytes, of: Transcript, count: int) -> bool:
    """Whether a body's list of messages ends with these ones of a transcript."""
    return _END.match(raw, of.ends[count - 1]) is not None


def _ends(raw: bytes, begin: int, piece: msgspec.Raw) -> list[int]:
    """Return the end of each item of a list that begins at `begin`."""
    ends, at = [], begin + 1
    for item in _split(piece):
        gap = _GAP.match(raw, at)
        assert gap is not None
        at = gap.end() + len(item)
        ends.append(at)
    return ends


def _leads(message: Any) -> bool:
    return type(message) is dict and message.get("role") in _LEADING


def marks_of(body: Mapping[str, Any], known: Known | None) -> list[Mark]:
    """Return the marks of `cache_control` in the messages, known ones too."""
    found = [] if known is None else [*known.marks()]
    messages = body.get("messages")
    for index, message in numbered(messages) if isinstance(messages, list) else ():
        if isinstance(message, dict):
            content = message.get("content")
            parts = (message, *(content if isinstance(content, list) else ()))
            values = [part.get("cache_control") for part in parts if isinstance(part, dict)]
            found += [Mark(index, _read_of(value)) for value in values if value is not None]
    return found


def _read_of(mark: Any) -> dict[str, str]:
    """Return what is read of a mark of `cache_control`, which may be any JSON."""
    if type(mark) is not dict:
        return {}
    texts = {name: mark[name] for name in ("type", "ttl") if name in mark}
    return {
        name: text if type(text) is str and len(text) <= _MARK_LETTERS else ""
        for name, text in texts.items()
    }
