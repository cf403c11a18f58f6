"""What was read of a program's messages, and the part of it that another body begins with. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, final

import orjson

from weft_gateway.model import ProgramKey

# Bytes of a transcript beside its messages, and of each message in it.
_OVERHEAD: Final = 2048
_PER_MESSAGE: Final = 52
_PER_MARK: Final = 256
_NEAR: Final = 4
_TAGS: Final = range(1, 8)


class Mark(NamedTuple):
    """A mark of `cache_control` in a message. message: its index. value: what is read of it."""

    message: int
    value: Any


@dataclass(slots=True, eq=False)
class Transcript:
    """The messages of a body behind the leading system messages, which are parsed with each body.

    first: index of the first one. name: of the member with the messages, whose list begins at
    `begin`. head: end of what comes before the first message, with its digest. ends, digests: of
    each message, in bytes, and of its bytes. costs: of parsing all up to the end of each. chain,
    point: hashes of the prompt before the first
    message (`weft_gateway.engine.tokens`, `weft_gateway.programs.lineage`); chains and points: up
    to the end of each message. tokens: estimated end of each. tags: the highest one of its
    sections. points: None if lineage was not asked; 0 for a message without text. models: whether
    the model wrote it. pieces, lines: fingerprints of the text (`Text` of lineage). key: the
    program. marked: numbers of the messages whose bytes have the name `cache_control` somewhere;
    marks: what hints read of it.

    Messages are added at the end, and never changed or removed: calls refer to a part of them.
    """

    first: int
    name: str
    begin: int
    head: int
    head_digest: int
    chain: int
    point: int
    key: ProgramKey
    ends: array[int] = field(default_factory=lambda: array("Q"))
    digests: array[int] = field(default_factory=lambda: array("q"))
    costs: array[int] = field(default_factory=lambda: array("Q"))
    chains: array[int] = field(default_factory=lambda: array("q"))
    tokens: array[float] = field(default_factory=lambda: array("d"))
    tags: bytearray = field(default_factory=bytearray)
    points: array[int] | None = None
    models: bytearray = field(default_factory=bytearray)
    pieces: array[int] = field(default_factory=lambda: array("Q"))
    lines: array[int] = field(default_factory=lambda: array("Q"))
    marks: tuple[Mark, ...] = ()
    marked: array[int] = field(default_factory=lambda: array("Q"))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def size(self) -> int:
        """Bytes of memory."""
        text = 8 * (len(self.pieces) + len(self.lines) + len(self.marked))
        return _OVERHEAD + _PER_MESSAGE * len(self) + _PER_MARK * len(self.marks) + text

    def beginning(self, count: int) -> Transcript:
        """Return a transcript of the first `count` messages."""
        return Transcript(
            self.first,
            self.name,
            self.begin,
            self.head,
            self.head_digest,
            self.chain,
            self.point,
            self.key,
            self.ends[:count],
            self.digests[:count],
            self.costs[:count],
            self.chains[:count],
            self.tokens[:count],
            self.tags[:count],
            None if self.points is None else self.points[:count],
            self.models[:count],
            self.pieces,
            self.lines,
            tuple([mark for mark in self.marks if mark.message < self.first + count]),
            self.marked[: bisect_left(self.marked, count)],
        )

    def begins(self, raw: bytes) -> bool:
        """Whether a body begins with what comes before the first message."""
        return hash(raw[: self.head]) == self.head_digest

    def same(self, raw: bytes, covered: int = 0) -> int:
        """Return the number of messages that a body begins with. covered: bytes at its beginning
        that are known to be equal.
        """
        ends = self.ends
        if covered < self.head and not self.begins(raw):
            return 0
        count = bisect_right(ends, covered)
        begin = ends[count - 1] if count else self.head
        for end, digest in zip(ends[count:], self.digests[count:], strict=True):
            if end > len(raw) or hash(raw[begin:end]) != digest:
                break
            begin = end
            count += 1
        return count


@final
@dataclass(slots=True, eq=False)
class Known:
    """The messages that a body has in common with an earlier one. Stands for them in the list of
    the parsed body.

    count: messages of the transcript. raw: the whole body.
    """

    of: Transcript
    count: int
    raw: bytes

    @property
    def first(self) -> int:
        """Index of the first known message."""
        return self.of.first

    @property
    def last(self) -> int:
        """Index after the last known message."""
        return self.of.first + self.count

    @property
    def is_near(self) -> bool:
        """Whether the body continues near the transcript's end. Clients may change their last
        messages, such as the marks in them.
        """
        return len(self.of) - self.count <= _NEAR

    @property
    def reach(self) -> int:
        """End of the last known message in the body."""
        return self.of.ends[self.count - 1]

    @property
    def chain(self) -> int:
        """Hash of the prompt up to the last known message."""
        return self.of.chains[self.count - 1]

    @property
    def tokens(self) -> float:
        """Estimated tokens up to the last known message."""
        return self.of.tokens[self.count - 1]

    def spans(self) -> list[tuple[float, int]]:
        """Return (end in tokens, tag): each message has the highest tag from it to the last one."""
        tags, tokens = self.of.tags, self.of.tokens
        lasts = sorted(((tags.rfind(tag, 0, self.count), tag) for tag in _TAGS), reverse=True)
        spans: list[tuple[float, int]] = []
        for place, tag in lasts:
            if place >= 0 and (not spans or tag > spans[-1][1]):
                spans.append((tokens[place], tag))
        spans.reverse()
        return spans

    def end_of(self, message: int) -> int:
        """Return the estimated tokens up to the end of a known message."""
        return round(self.of.tokens[message - self.first])

    def marks(self) -> Iterator[Mark]:
        """Yield the marks in the known messages."""
        for mark in self.of.marks:
            if mark.message < self.last:
                yield mark

    def points(self) -> tuple[Sequence[int], Sequence[int], bytes | bytearray]:
        """Return the index of each known message with text, its point, and whether it is the
        model's.
        """
        if self.of.points is None:
            return (), (), b""
        points, models = self.of.points[: self.count], self.of.models[: self.count]
        if 0 not in points:
            return range(self.first, self.last), points, models
        kept = [number for number, point in enumerate(points) if point]
        return (
            [self.first + number for number in kept],
            [points[number] for number in kept],
            bytes([models[number] for number in kept]),
        )

    def message(self, number: int) -> Any:
        """Parse a message, by its number among the known ones."""
        ends = self.of.ends
        begin = ends[number - 1] if number else self.of.head
        return orjson.loads(self.raw[begin : ends[number]].lstrip(b" \t\r\n,"))

    def messages(self) -> Iterator[Any]:
        """Parse the messages, one after another."""
        return map(self.message, range(self.count))


def numbered(messages: list[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the items of a body's list with their index in the whole list, and what stands for
    known ones with the index of the first.
    """
    index = 0
    for message in messages:
        yield index, message
        index += message.count if message.__class__ is Known else 1


def expanded(messages: list[Any]) -> Iterator[Any]:
    """Yield all messages, known ones too."""
    for message in messages:
        if message.__class__ is Known:
            yield from message.messages()
        else:
            yield message


def latest(messages: list[Any]) -> Iterator[Any]:
    """Yield all messages, known ones too, the last one first."""
    for message in reversed(messages):
        if message.__class__ is Known:
            yield from map(message.message, reversed(range(message.count)))
        else:
            yield message


def count_of(messages: list[Any]) -> int:
    """Return the number of messages in the whole list."""
    return sum([message.count if message.__class__ is Known else 1 for message in messages])
