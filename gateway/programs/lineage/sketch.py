"""Fingerprints of a call's messages: the rolling chain, and pieces of text. Pure.

A point of the chain stands for all messages up to there: h_i = H(h_{i-1}, message_i), with the model
and the tools as h_0. In the last message there are points inside the text too, so that a transcript
that a client keeps in one growing text is found as well as one in messages.

A piece is what stands between marks of punctuation, quotes and line ends: what stays whole when an
answer is quoted in another message, as text or as JSON.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from zlib import adler32, crc32

from gateway.programs.lineage.canonical import ASSISTANT, CALL, Atom, messages_of, root_of

MIN_PIECE_BYTES: Final = 24
MAX_PIECES: Final = 1024
_SCANNED_BYTES: Final = 65_536
_MARKS: Final = b'".:;!?\\\r\t'
_TO_LINES: Final = bytes.maketrans(_MARKS, b"\n" * len(_MARKS))
# Where a text has points: often at first, so that short ones have some too; seldom at last.
_CUTS: Final = (64, 128, 256, *range(512, 32_768, 512), *range(32_768, 1 << 20, 4096))


class Sketch:
    """The fingerprints of one request.

    points: of the chain, after each message. cuts: bytes of the last text to the point there.
    length: bytes of the last text. answers: after each message, how many there were of the model.
    turn: how many messages there are up to the model's last.
    """

    __slots__ = ("_messages", "_open", "_state", "_text", "answers", "cuts", "points", "turn")

    def __init__(self, tenant: str, body: Mapping[str, Any]) -> None:
        self._messages = messages_of(body)
        state = hashlib.blake2b(root_of(body), digest_size=8, key=tenant.encode()[:64])
        self.points: list[int] = []
        self.answers: list[int] = []
        self.cuts: dict[int, int] = {}
        self.turn = 0
        answers = 0
        last = len(self._messages) - 1
        self._open, self._text = state, b""
        for index, message in enumerate(self._messages):
            if message[0].kind in _MODELS:
                answers += 1
                self.turn = index + 1
            if index == last:
                self._finish(state, message)
            else:
                state.update(_encoded(message))
            self.points.append(int.from_bytes(state.digest()))
            self.answers.append(answers)
        self._state = state

    def _finish(self, state: hashlib.blake2b, message: list[Atom]) -> None:
        """The last message: as the others, with points inside its last text."""
        kind, text = message[-1]
        state.update(_encoded(message[:-1]) + _head(kind))
        self._open, self._text = state.copy(), _bytes(text)
        done = 0
        for cut in _CUTS:
            if cut > len(self._text):
                break
            state.update(self._text[done:cut])
            self.cuts[cut] = int.from_bytes(state.digest())
            done = cut
        state.update(self._text[done:])

    @property
    def length(self) -> int:
        """Bytes of the last text."""
        return len(self._text)

    def answers_at(self, point: int) -> bool:
        """Whether the message after this point is the model's."""
        return (
            point + 1 < len(self._messages) and self._messages[point + 1][0].kind in _MODELS
        )

    def beginnings(self, lengths: Iterable[int]) -> dict[int, int]:
        """Points after so many bytes of the last text; in one pass over it."""
        state, done = self._open.copy(), 0
        found = {}
        for length in sorted(set(lengths)):
            state.update(self._text[done:length])
            found[length] = int.from_bytes(state.digest())
            done = length
        return found

    def answered(self, answer: Sequence[Atom]) -> int:
        """The point after this answer, given as a message."""
        state = self._state.copy()
        state.update(_encoded(answer))
        return int.from_bytes(state.digest())

    def recent(self) -> dict[int, int]:
        """Pieces of what follows the model's last message: fingerprints, and bytes of each."""
        return keys(pieces(self._messages[self.turn :]))

    def older(self) -> dict[int, int]:
        """Pieces of what comes before that, as above."""
        return keys(pieces(self._messages[: self.turn]))

    def own(self) -> set[bytes]:
        """All pieces of the request."""
        return set(pieces(self._messages, 1 << 30))


def pieces(messages: Iterable[Sequence[Atom]], limit: int = _SCANNED_BYTES) -> list[bytes]:
    """The pieces of the last `limit` bytes, in their order."""
    data = b"\n".join([_bytes(atom.text) for message in messages for atom in message])
    found = data[-limit:].translate(_TO_LINES).split(b"\n")
    return [piece for piece in map(bytes.strip, found) if len(piece) >= MIN_PIECE_BYTES]


def keys(found: Sequence[bytes]) -> dict[int, int]:
    """Fingerprints of the last MAX_PIECES pieces, with their bytes. Two checksums: whoever can make
    two texts of one fingerprint only confuses programs of his own tenant."""
    found = found[-MAX_PIECES:]
    sums = zip(map(crc32, found), map(adler32, found), map(len, found), strict=True)
    return {crc << 32 | adler: size for crc, adler, size in sums}


_MODELS: Final = frozenset({ASSISTANT, CALL})


def _encoded(message: Iterable[Atom]) -> bytes:
    return _bytes("".join([f"\x1e{kind}\x1f{text}" for kind, text in message]))


def _head(kind: str) -> bytes:
    return f"\x1e{kind}\x1f".encode()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
