"""Prompts and answers as bytes, four per token, and the hashes of their KV blocks. Pure.

An answer's words are numbered, one token each: " 000 001 002 ...". A lost, doubled or misplaced
token is therefore visible. An answer has the same bytes in the next prompt, and so the same blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

TOKEN_BYTES: Final = 4
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_WORDS: Final = 36**3
_WORD: Final = re.compile(rb" [0-9a-z]{3}")
# The number of the first word. It is larger than any number of four bytes.
FIRST_WORD: Final = 2**32


def word(number: int) -> str:
    """Return the answer's word with this number, from 0."""
    number %= _WORDS
    return f" {_DIGITS[number // 1296]}{_DIGITS[number // 36 % 36]}{_DIGITS[number % 36]}"


_KNOWN: Final = tuple(word(number) for number in range(4096))


@lru_cache(maxsize=256)
def words(count: int) -> str:
    """Return an answer of `count` tokens."""
    known = "".join(_KNOWN[:count])
    return known + "".join(word(number) for number in range(len(_KNOWN), count))


def pad(text: bytes) -> bytes:
    """Pad the text to whole tokens, so that the next text begins with a new token."""
    return text + bytes(-len(text) % TOKEN_BYTES)


def of_ids(ids: Iterable[int]) -> bytes:
    """Return token ids as bytes, one token each."""
    return b"".join((number & 0xFFFFFFFF).to_bytes(TOKEN_BYTES, "big") for number in ids)


def block_hashes(text: bytes, block_tokens: int) -> list[int]:
    """Return one hash per full block. Each covers all bytes up to the block's end."""
    size = block_tokens * TOKEN_BYTES
    found: list[int] = []
    before = 0
    for end in range(size, len(text) + 1, size):
        before = hash((before, text[end - size : end]))
        found.append(before)
    return found


def ids(text: bytes) -> Iterator[int]:
    """Yield a number for each token. Consecutive words of an answer have consecutive numbers."""
    for start in range(0, len(text), TOKEN_BYTES):
        token = text[start : start + TOKEN_BYTES]
        if _WORD.fullmatch(token):
            yield FIRST_WORD + int(token[1:], 36)
        else:
            yield int.from_bytes(token.ljust(TOKEN_BYTES, b"\0"), "big")
