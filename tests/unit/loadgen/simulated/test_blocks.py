"""KV blocks are shared, found, reused in order, and never lost: also by any sequence of uses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_bench.simulated.blocks import BlockPool


def test_what_is_full_is_found_until_somebody_else_takes_the_block():
    pool = BlockPool(3)
    blocks = pool.take(2)
    pool.hold(blocks[0], 11)
    pool.hold(blocks[1], 12)
    pool.release(blocks)
    assert pool.find([11, 12, 13]) == blocks
    assert pool.find([12]) == [blocks[1]]
    # The block that was never used first, then the end of what was released.
    assert pool.take(2) == [2, blocks[1]]
    assert pool.find([11, 12]) == [blocks[0]]


def test_shared_blocks_are_free_when_the_last_user_has_gone():
    pool = BlockPool(2)
    mine = pool.take(1)
    pool.share(mine)
    assert pool.unused(mine) == 0
    pool.release(mine)
    assert pool.free == 1
    pool.release(mine)
    assert (pool.free, pool.unused(mine)) == (2, 1)


def test_more_than_there_are_is_refused():
    pool = BlockPool(2)
    with pytest.raises(ValueError, match="3 blocks of 2"):
        pool.take(3)


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 9), max_size=4)), max_size=60))
def test_any_sequence_of_uses_keeps_the_books(uses):
    pool = BlockPool(8)
    used: list[list[int]] = []
    for what, contents in uses:
        if what == 0 and used:
            pool.release(used.pop(0))
        elif what == 1:
            found = pool.find(contents)
            pool.share(found)
            used.append(found)
        elif what == 2 and len(contents) <= pool.free:
            taken = pool.take(len(contents))
            for block, content in zip(taken, contents, strict=True):
                pool.hold(block, content)
            used.append(taken)
        elif what == 3 and not contents:
            pool.reset()
        assert pool.violations(used) == []
