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

from bisect import bisect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha1
from typing import Any, Final, NamedTuple, Protocol
from zlib import adler32, crc32

from weft_gateway.programs.lineage.canonical import ASSISTANT, CALL, Atom, messages_of, root_of

MIN_PIECE_BYTES: Final = 24
MAX_PIECES: Final = 512
# Limits for messages of the model: the shortest line, the shortest text that counts as a whole, and
# the number of both in one lookup.
MIN_LINE_BYTES: Final = 8
MIN_WHOLE_BYTES: Final = 64
MAX_LINES: Final = 128
_SCANNED_BYTES: Final = 32_768
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


class Fingerprint:
    """The fingerprints of one request.

    points: of the chain, after each message. cuts: points inside the last text, each with the
    number of bytes before it. turn: number of messages up to the model's last one.
    """

    __slots__ = ("_messages", "_own", "_state", "_states", "_text", "cuts", "points", "turn")

    def __init__(self, tenant: str, body: Mapping[str, Any]) -> None:
        self._messages = messages = messages_of(body)
        state = _begun(tenant, root_of(body))
        self.points: list[int] = []
        for message in messages[:-1]:
            if len(message) == 1:  # The usual case, which takes a third of the total time.
                kind, text = message[0]
                state.update(f"\x1e{kind}\x1f{text}".encode("utf-8", "surrogatepass"))
            else:
                state.update(_encoded(message))
            self.points.append(int.from_bytes(state.digest()[:8]))
        self.cuts: dict[int, int] = {}
        self._states: dict[int, _Hash] = {0: state}
        self._text = b""
        if messages:
            self._finish(state, messages[-1])
        self._state = state
        turn = len(messages)
        while turn and messages[turn - 1][0][0] not in _MODELS:
            turn -= 1
        self.turn = turn
        self._own: list[bytes] | None = None

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
        self.points.append(int.from_bytes(state.digest()[:8]))

    @property
    def length(self) -> int:
        """Bytes of the last text."""
        return len(self._text)

    def answers_at(self, point: int) -> bool:
        """Whether the message after this point is from the model."""
        return point + 1 < len(self._messages) and self._messages[point + 1][0][0] in _MODELS

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
        if self.turn:
            return keys(pieces(self._messages[self.turn :]))
        self._own = pieces(self._messages)
        return keys(self._own)

    def older(self) -> dict[int, int]:
        """Return pieces of the messages before that, in the same form."""
        return keys(pieces(self._messages[: self.turn]))

    def spoken(self) -> dict[int, int]:
        """Return lines and whole texts of the model's own messages, in the same form."""
        return line_keys(lines(self._messages[: self.turn]))

    def own_lines(self) -> set[bytes]:
        """Return the request's lines and whole texts of the model as bytes."""
        return {*lines(self._messages)}

    def own(self) -> set[bytes]:
        """Return the request's pieces from its beginning and its end as bytes."""
        last = pieces(self._messages) if self._own is None else self._own
        return {*last, *pieces(self._messages, beginning=True)}


def pieces(messages: Sequence[Sequence[Atom]], beginning: bool = False) -> list[bytes]:
    """Return pieces of the last bytes of the messages, in order. beginning: of the first bytes, if
    the last ones do not cover them.
    """
    texts: list[str] = []
    size = 0
    for message in messages if beginning else reversed(messages):
        # An answer may be empty.
        said = [text for _, text in (message if beginning else reversed(message))]
        texts += said
        size += sum(map(len, said))
        if size >= _SCANNED_BYTES:
            break
    if beginning:
        # A short text is covered from its end.
        data = _bytes("\n".join(texts))[:_SCANNED_BYTES] if size >= _SCANNED_BYTES else b""
    else:
        texts.reverse()
        data = _bytes("\n".join(texts))[-_SCANNED_BYTES:]
    found = data.translate(_TO_LINES).split(b"\n")
    return [piece for piece in map(bytes.strip, found) if len(piece) >= MIN_PIECE_BYTES]


def lines(messages: Sequence[Sequence[Atom]]) -> list[bytes]:
    """Return lines and multi-line texts of the model's messages, in order. Limited to the last
    bytes, as with pieces.
    """
    found: list[list[bytes]] = []
    size = 0
    for message in reversed(messages):
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
    return {crc32(piece) << 32 | adler32(piece): len(piece) for piece in found[-MAX_PIECES:]}


def _begun(tenant: str, root: bytes) -> _Hash:
    """Return the hash state at the start of a tenant's chains. SHA-1 is the fastest hash on
    processors with instructions for it. Collision resistance is not required: tenants are separated
    regardless of fingerprints.
    """
    if len(root) > _SHORT_ROOT:
        return sha1(tenant.encode() + b"\x1d" + root, usedforsecurity=False)
    return _without_tools(tenant, root).copy()


@lru_cache(maxsize=256)
def _without_tools(tenant: str, root: bytes) -> _Hash:
    return sha1(tenant.encode() + b"\x1d" + root, usedforsecurity=False)


def _encoded(message: Sequence[Atom]) -> bytes:
    return _bytes("".join([f"\x1e{kind}\x1f{text}" for kind, text in message]))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _point(state: _Hash) -> int:
    return int.from_bytes(state.digest()[:8])
