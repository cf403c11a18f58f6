"""Tokens of the emulated model: a function of the prompt and the position."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Sequence
from typing import Any, Final
from zlib import crc32

import numpy

_MASK: Final = (1 << 64) - 1
# A word with the space before it, as tokenizers with byte-level or sentencepiece pieces write it.
_WORD: Final = re.compile(r"[Ġ▁][a-z]{2,12}")
_BLANK: Final = re.compile(r"[Ġ▁ĊĉčĀ\s]*")
# Under a grammar, one token in this many ends a string, a list, an object or the answer if it may.
_CLOSING_EVERY: Final = 4
_CLOSING: Final = ('"', "}", "]", ",")


def seed_of(prompt: Sequence[int]) -> int:
    """Return the seed of the answer to a prompt."""
    return crc32(array("I", prompt).tobytes())


def draw(seed: int, position: int) -> int:
    """Return a pseudo-random number of 64 bits (splitmix64)."""
    z = (seed + (position + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class Vocabulary:
    """The tokens that the emulated model writes.

    pieces: the tokenizer's text of each token. special: tokens without text. A vocabulary without
    words writes any token that is not special.
    """

    def __init__(self, pieces: Sequence[str], special: Collection[int]) -> None:
        ids = [number for number in range(len(pieces)) if number not in special]
        self._words = [n for n in ids if _WORD.fullmatch(pieces[n])] or ids
        self._closing = [n for text in _CLOSING for n in ids if pieces[n] == text]
        self._written = numpy.zeros(len(pieces), dtype=bool)
        self._written[[n for n in ids if not _BLANK.fullmatch(pieces[n])]] = True

    def word(self, seed: int, position: int, stops: Collection[int] = ()) -> int:
        """Return the token at a position of an answer, but not one of `stops`."""
        number = draw(seed, position)
        for offset in range(len(self._words)):
            token = self._words[(number + offset) % len(self._words)]
            if token not in stops:
                return token
        raise ValueError("every word of the vocabulary is a stop token")

    def allowed(self, seed: int, position: int, stops: Collection[int], row: Any) -> int:
        """Return a token that a grammar allows.

        row: the bitmask, 32 tokens in each number. If only stop tokens and blanks are allowed, the
        grammar has ended, and the result is a stop token.
        """
        bits = numpy.unpackbits(row.view(numpy.uint8), bitorder="little")[: len(self._written)]
        word = self.word(seed, position, stops)
        # In a string, or before a tool call.
        free = 2 * int(bits.sum()) > len(bits)
        if draw(seed, position) // 7 % _CLOSING_EVERY == 0:
            for token in self._closing if free else [*stops, *self._closing]:
                if token < len(bits) and bits[token] and not bits.all():
                    return token
        if bits[word]:
            return word
        candidates = numpy.flatnonzero(bits & self._written)
        candidates = candidates[~numpy.isin(candidates, list(stops))]
        if not len(candidates):
            ends = [token for token in stops if token < len(bits) and bits[token]]
            candidates = numpy.array(ends or numpy.flatnonzero(bits))
        return int(candidates[draw(seed, position) % len(candidates)])
