"""Digests of a body's beginnings, at fixed positions. Pure.

One pass over a body gives the digests of all its beginnings at these positions, so that a body is
compared with any number of earlier ones at once.

Python's hash of bytes is SipHash with a secret key of the process: clients can neither compute nor
see it, so they cannot make two beginnings with the same digest. It reads 5 GB/s.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

# Positions: 16 between a size and its double, from 8 KiB to 64 GiB.
_STEPS: Final = 16
_POSITIONS: Final = tuple(
    (8192 << octave) * (_STEPS + step) // _STEPS for octave in range(23) for step in range(_STEPS)
)
# Shorter bodies are read in less time than they are compared.
LEAST_BYTES: Final = 2 * _POSITIONS[0]


def reach(size: int) -> int:
    """Return the number of positions within the first `size` bytes."""
    return bisect_right(_POSITIONS, size)


def position(number: int) -> int:
    """Return the position of a digest: it covers the bytes before."""
    return _POSITIONS[number]


def digests(raw: bytes) -> list[int]:
    """Return the digest of the body's beginning at each position."""
    # The hash of a view would cost the hash of the whole body, too.
    found = []
    digest = begin = 0
    for end in _POSITIONS[: reach(len(raw))]:
        digest = hash((digest, raw[begin:end]))
        found.append(digest)
        begin = end
    return found
