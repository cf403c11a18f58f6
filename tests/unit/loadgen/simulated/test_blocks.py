"""KV blocks are shared, found, reused in order and never lost, for any sequence of operations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_bench.simulated.blocks import BlockPool


def test_full_block_is_found_until_it_is_reused():
    pool = BlockPool(3)
    blocks = pool.take(2)
    pool.hold(blocks[0], 11)
    pool.hold(blocks[1], 12)
    pool.release(blocks)
    assert pool.find([11, 12, 13]) == blocks
    assert pool.find([12]) == [blocks[1]]
    # The block that was never used comes first, then the last released one.
    assert pool.take(2) == [2, blocks[1]]
    assert pool.find([11, 12]) == [blocks[0]]


def test_shared_blocks_are_free_after_the_last_release():
    pool = BlockPool(2)
    mine = pool.take(1)
    pool.share(mine)
    assert pool.unused(mine) == 0
    pool.release(mine)
    assert pool.free == 1
    pool.release(mine)
    assert (pool.free, pool.unused(mine)) == (2, 1)


def test_taking_more_than_the_free_blocks_is_refused():
    pool = BlockPool(2)
    with pytest.raises(ValueError, match="3 blocks of 2"):
        pool.take(3)


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 9), max_size=4)), max_size=60))
def test_any_sequence_of_operations_is_consistent(uses):
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
