"""Fingerprints of a call's messages: the rolling chain, and pieces of text. Pure.

A point of the chain stands for all messages up to it: h_i = H(h_{i-1}, message_i), where h_0 covers
the model and the tools. The last message also has points inside its text. They match a transcript
that a client keeps in one growing text, as well as one in messages.

A piece is the text between punctuation marks, quotes and line ends. Pieces stay intact when an
answer is quoted in another message, as text or as JSON. Code yields few pieces, because its lines
are short. A message of the model therefore also counts as a whole, and so does each of its lines,
but only against messages of the model: two programs of users may share lines of code.
"""

from __future__ import annotations

from array import array
from bisect import bisect, bisect_left
from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from hashlib import sha1
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, overload
from zlib import adler32, crc32

from weft_gateway.programs.lineage.canonical import (
    ASSISTANT,
    CALL,
    Atom,
    messages_of,
    reader_of,
    root_of,
)
from weft_gateway.transcripts.transcript import Known

MIN_PIECE_BYTES: Final = 24
MAX_PIECES: Final = 512
# Limits for messages of the model: the shortest line, the shortest text that counts as a whole, and
# the number of both in one lookup.
MIN_LINE_BYTES: Final = 8
MIN_WHOLE_BYTES: Final = 64
MAX_LINES: Final = 128
_SCANNED_BYTES: Final = 32_768
_SCANNED_MESSAGES: Final = 32
_MARKS: Final = b'".:;!?\\\r\t'
_TO_LINES: Final = bytes.maketrans(_MARKS, b"\n" * len(_MARKS))
# Positions of points in a text: dense at first, so that short texts have some; sparse at the end.
_CUTS: Final = (64, 128, 256, *range(512, 32_768, 512), *range(32_768, 1 << 20, 4096))
# The hash of a root is cached if the root is no longer than a model's name.
_SHORT_ROOT: Final = 128
_MODELS: Final = frozenset({ASSISTANT, CALL})


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...
    def copy(self) -> _Hash: ...


class End(NamedTuple):
    """The end of a call's messages. point: of the chain. cut: the last point inside the last text,
    which has `length` bytes; 0 if none.
    """

    point: int
    cut: int
    length: int


class Text(NamedTuple):
    """Fingerprints of a request's own text. pieces: of its beginning and its end. lines: of the
    last lines and whole texts of the model's messages.
    """

    pieces: array[int]
    lines: array[int]


class Messages(Sequence[list[Atom]]):
    """Messages with text. Known ones are parsed when they are asked for."""

    __slots__ = ("_before", "_behind", "_known", "_numbers", "_range")

    def __init__(self, items: Sequence[list[Atom] | Known]) -> None:
        """items: of which one may stand for known messages."""
        at = next((at for at, item in enumerate(items) if isinstance(item, Known)), len(items))
        self._before, self._behind = items[:at], items[at + 1 :]
        self._known = items[at] if at < len(items) else None
        self._numbers = self._known.points()[0] if isinstance(self._known, Known) else ()
        self._range = range(at + len(self._numbers) + len(self._behind))

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> list[Atom]: ...
    @overload
    def __getitem__(self, index: slice) -> Messages: ...
    def __getitem__(self, index: int | slice) -> list[Atom] | Messages:
        """Return a message, or a view of some."""
        if isinstance(index, slice):
            view = copy(self)
            view._range = self._range[index]
            return view
        at, known = self._range[index], self._known
        if at < len(self._before):
            item = self._before[at]
        else:
            at -= len(self._before)
            if at < len(self._numbers) and isinstance(known, Known):
                message = known.message(self._numbers[at] - known.first)
                return reader_of(known.of.name)(message)
            item = self._behind[at - len(self._numbers)]
        assert not isinstance(item, Known)
        return item


class Stale(Exception):
    """The known messages of a body do not continue what is before them."""


class Fingerprint:
    """The fingerprints of one request.

    points: of the chain, after each message. numbers: the index of each message in the request's
    list, -1 for one beside it. models: whether each is the model's. root: the point before all
    messages. cuts: points inside the last text, each with the number of bytes before it. turn:
    number of messages up to the model's last one.
    """

    __slots__ = (
        "_known", "_messages", "_own", "_state", "_states", "_text", "cuts", "models", "numbers",
        "points", "root", "turn",
    )  # fmt: skip

    def __init__(self, tenant: str, body: Mapping[str, Any]) -> None:
        """Raises Stale."""
        self.root = point = _begun(tenant, root_of(body))
        self.points: list[int] = []
        self.numbers: list[int] = []
        self.models = bytearray()
        self._known: Known | None = None
        messages = messages_of(body)
        for index, message in messages[:-1]:
            if isinstance(message, Known):
                if message.of.points is None or message.of.point != point:
                    raise Stale
                self._known = message
                numbers, points, models = message.points()
                self.points += points
                self.numbers += numbers
                self.models += models
                point = self.points[-1] if self.points else point
                continue
            state = _after(point)
            if len(message) == 1:  # The usual case, which takes a third of the total time.
                kind, text = message[0]
                state.update(f"\x1e{kind}\x1f{text}".encode("utf-8", "surrogatepass"))
            else:
                state.update(_encoded(message))
            point = _point(state)
            self._add(index, message, point)
        self.cuts: dict[int, int] = {}
        self._text = b""
        state = _after(point)
        self._states: dict[int, _Hash] = {0: state}
        if messages:
            index, message = messages[-1]
            if isinstance(message, Known):
                raise Stale
            self._finish(state, message)
            point = _point(state)
            self._add(index, message, point)
            # What continues the text goes on from `state`, and a further message from here.
            state = _after(point)
        self._state = state
        self._messages = Messages([each for _, each in messages])
        self.turn = self.models.rfind(1) + 1
        self._own: Text | None = None

    def _add(self, index: int, message: list[Atom], point: int) -> None:
        self.points.append(point)
        self.numbers.append(index)
        self.models.append(message[0][0] in _MODELS)

    def _finish(self, state: _Hash, message: list[Atom]) -> None:
        """Hash the last message, with points inside its last text."""
        kind, text = message[-1]
        before = _encoded(message[:-1]) if len(message) > 1 else b""
        state.update(b"%b\x1e%b\x1f" % (before, kind.encode()))
        self._text = data = _bytes(text)
        states, cuts, size = self._states, self.cuts, len(data)
        states[0] = state.copy()
        done = 0
        for cut in _CUTS:
            if cut > size:
                break
            state.update(data[done:cut])
            cuts[int.from_bytes(state.digest()[:8])] = cut
            states[cut] = state.copy()
            done = cut
        state.update(data[done:])

    def chain(self, first: int, since: int) -> tuple[int, dict[int, tuple[int, int]]]:
        """Return the point before the message with the index `first`, and by index, from `since`
        on, the point after each message and whether it is the model's.
        """
        numbers, points = self.numbers, self.points
        before = bisect_left(numbers, first)
        start = bisect_left(numbers, since)
        found = zip(points[start:], self.models[start:], strict=True)
        return (
            points[before - 1] if before else self.root,
            dict(zip(numbers[start:], found, strict=True)),
        )

    @property
    def length(self) -> int:
        """Bytes of the last text."""
        return len(self._text)

    def answers_at(self, point: int) -> bool:
        """Whether the message after this point is from the model."""
        return point + 1 < len(self.models) and bool(self.models[point + 1])

    def beginning(self, cut: int, length: int) -> int:
        """Return the point after `length` bytes of the last text, starting at an earlier one of
        `cuts`.
        """
        state = self._states[cut].copy()
        state.update(self._text[cut:length])
        return _point(state)

    def end(self) -> End | None:
        """Return the end of the request; None if it has no messages."""
        if not self.points:
            return None
        return End(self.points[-1], next(reversed(self.cuts), 0), self.length)

    def after(self, answer: Sequence[Atom]) -> End:
        """Return the end of the request plus this answer as a separate message."""
        state = self._state.copy()
        state.update(_encoded(answer))
        return End(_point(state), 0, 0)

    def grown(self, answer: str) -> End:
        """Return the end of the request if this answer extends its last text."""
        text = self._text + _bytes(answer.rstrip())
        done = max(self._states)
        state, cut = self._states[done].copy(), next(reversed(self.cuts), 0)
        for at in _CUTS[bisect(_CUTS, done) :]:
            if at > len(text):
                break
            state.update(text[done:at])
            done, cut = at, _point(state)
        state.update(text[done:])
        return End(_point(state), cut, len(text))

    def recent(self) -> dict[int, int]:
        """Return pieces after the model's last message, as fingerprints with sizes in bytes."""
        return keys(pieces(self._messages[self.turn :]))

    def older(self) -> dict[int, int]:
        """Return pieces of the messages before that, in the same form."""
        return keys(pieces(self._messages[: self.turn]))

    def spoken(self) -> dict[int, int]:
        """Return lines and whole texts of the model's own messages, in the same form."""
        return line_keys(lines(self._messages[: self.turn]))

    def own(self) -> Text:
        """Return the fingerprints of the request's own text."""
        if self._own is None:
            known = self._known
            if known is None or not known.is_near:
                found = *pieces(self._messages, beginning=True), *pieces(self._messages)
                self._own = Text(array("Q", map(key, found)), _lines_of(self._messages))
            else:
                new = self._messages[bisect_left(self.numbers, known.last) :]
                before, last = known.of.pieces, array("Q", map(key, pieces(new)))
                begun = before[: MAX_PIECES * 2]
                self._own = Text(
                    begun + (before[len(begun) :] + last)[-MAX_PIECES * 2 :],
                    (known.of.lines + _lines_of(new))[-MAX_LINES:],
                )
        return self._own


def _lines_of(messages: Sequence[Sequence[Atom]]) -> array[int]:
    return array("Q", [key(b"\x1d" + line) for line in lines(messages)])


def pieces(messages: Sequence[Sequence[Atom]], beginning: bool = False) -> list[bytes]:
    """Return pieces of the last messages, and of their last bytes, in order. beginning: of the
    first ones, if the last ones do not cover them.
    """
    texts: list[str] = []
    size = 0
    scanned = messages if beginning else reversed(messages)
    for message in islice(scanned, _SCANNED_MESSAGES):
        # An answer may be empty.
        said = [text for _, text in (message if beginning else reversed(message))]
        texts += said
        size += sum(map(len, said))
        if size >= _SCANNED_BYTES:
            break
    if beginning:
        # A short text is covered from its end.
        short = size < _SCANNED_BYTES and len(messages) <= _SCANNED_MESSAGES
        data = b"" if short else _bytes("\n".join(texts))[:_SCANNED_BYTES]
    else:
        texts.reverse()
        data = _bytes("\n".join(texts))[-_SCANNED_BYTES:]
    found = data.translate(_TO_LINES).split(b"\n")
    return [piece for piece in map(bytes.strip, found) if len(piece) >= MIN_PIECE_BYTES]


def lines(messages: Sequence[Sequence[Atom]]) -> list[bytes]:
    """Return lines and multi-line texts of the model's messages, in order. Limited to the last
    messages and bytes, as with pieces.
    """
    found: list[list[bytes]] = []
    size = 0
    for message in islice(reversed(messages), _SCANNED_MESSAGES):
        for kind, text in reversed(message):
            if kind is not ASSISTANT:
                continue
            data = _bytes(text)
            size += len(data)
            cut = [
                line for line in map(bytes.strip, data.split(b"\n")) if len(line) >= MIN_LINE_BYTES
            ]
            if len(data) >= MIN_WHOLE_BYTES and len(cut) > 1:
                cut.append(data)
            found.append(cut)
        if size >= _SCANNED_BYTES:
            break
    found.reverse()
    return [line for cut in found for line in cut][-MAX_LINES:]


def line_keys(found: Sequence[bytes]) -> dict[int, int]:
    """Return fingerprints of lines with their sizes. They differ from those of pieces."""
    return keys([b"\x1d" + line for line in found])


def keys(found: Sequence[bytes]) -> dict[int, int]:
    """Return fingerprints of the last MAX_PIECES pieces with their sizes. Two checksums are enough:
    a client that forges a collision affects only programs of the same tenant.
    """
    return {key(piece): len(piece) for piece in found[-MAX_PIECES:]}


def key(piece: bytes) -> int:
    """Return the fingerprint of a piece."""
    return crc32(piece) << 32 | adler32(piece)


def _begun(tenant: str, root: bytes) -> int:
    """Return the point at the start of a tenant's chains. SHA-1 is the fastest hash on processors
    with instructions for it. Collision resistance is not required: tenants are separated regardless
    of fingerprints.
    """
    if len(root) > _SHORT_ROOT:
        return _point(sha1(tenant.encode() + b"\x1d" + root, usedforsecurity=False))
    return _without_tools(tenant, root)


@lru_cache(maxsize=256)
def _without_tools(tenant: str, root: bytes) -> int:
    return _point(sha1(tenant.encode() + b"\x1d" + root, usedforsecurity=False))


def _after(point: int) -> _Hash:
    """Return the hash state of a message behind a point."""
    return sha1(point.to_bytes(8), usedforsecurity=False)


def _encoded(message: Sequence[Atom]) -> bytes:
    return _bytes("".join([f"\x1e{kind}\x1f{text}" for kind, text in message]))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _point(state: _Hash) -> int:
    return int.from_bytes(state.digest()[:8])
