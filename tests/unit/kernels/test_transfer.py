"""Cutting of a swap for a bounded staging buffer. The transfers themselves need a GPU."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_kernels.transfer import Part, parts_of


@pytest.mark.parametrize(
    ("count", "size", "limit", "expected"),
    [
        (4, 10, 40, [Part(0, 4, 0)]),
        (5, 10, 40, [Part(0, 2, 0), Part(2, 4, 1), Part(4, 5, 0)]),
        # Every part with several blocks begins at an even index.
        (5, 10, 48, [Part(0, 2, 0), Part(2, 4, 1), Part(4, 5, 0)]),
        (7, 10, 69, [Part(0, 2, 0), Part(2, 4, 1), Part(4, 6, 0), Part(6, 7, 1)]),
        (3, 10, 1, [Part(0, 1, 0), Part(1, 2, 1), Part(2, 3, 0)]),
    ],
)
def test_a_swap_within_the_limit_is_one_transfer(count, size, limit, expected):
    assert list(parts_of(count, size, limit)) == expected


@given(st.integers(1, 500), st.integers(1, 100), st.integers(0, 10_000))
def test_parts_cover_all_blocks_once_within_the_limit(count, size, limit):
    parts = list(parts_of(count, size, limit))
    assert [b for part in parts for b in range(part.first, part.end)] == list(range(count))
    halves = {part.half for part in parts}
    most = max(part.end - part.first for part in parts)
    assert most * size * len(halves) <= max(limit, 2 * size)
    assert all(a.half != b.half for a, b in pairwise(parts))
