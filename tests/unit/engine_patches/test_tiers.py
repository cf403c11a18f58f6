"""The tiered queue in the place of vLLM's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("vllm")

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock

from engine_patches.tiers import TieredFreeQueue

TIERS = 4
COUNT = 12


class World:
    """A queue, its blocks, and the same in plain lists."""

    def __init__(self) -> None:
        self.blocks = [KVCacheBlock(number) for number in range(COUNT)]
        self.tier = dict.fromkeys(range(COUNT), 0)
        plain = FreeKVCacheBlockQueue(self.blocks)
        self.queue = TieredFreeQueue(
            lambda: FreeKVCacheBlockQueue([]),
            TIERS,
            lambda block: self.tier[block.block_id],
            plain.get_all_free_blocks(),
        )
        self.model: list[list[int]] = [list(range(COUNT)), *([] for _ in range(TIERS - 1))]

    @property
    def free(self) -> list[int]:
        return [number for tier in self.model for number in tier]

    def check(self) -> None:
        found = [block.block_id for block in self.queue.get_all_free_blocks()]
        assert found == self.free
        assert self.queue.num_free_blocks == len(found)
        assert self.queue.counts() == [len(tier) for tier in self.model]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pop", "pop_n", "remove", "append", "prepend", "retier"]),
        st.integers(0, COUNT - 1),
        st.integers(0, TIERS - 1),
    ),
    max_size=60,
)


@given(STEPS)
def test_it_behaves_as_lists_in_order_whatever_comes(steps):
    world = World()
    for kind, number, tier in steps:
        free = world.free
        if kind == "pop" and free:
            assert world.queue.popleft().block_id == free[0]
            next(t for t in world.model if t).pop(0)
        elif kind == "pop_n" and number <= len(free):
            taken = [block.block_id for block in world.queue.popleft_n(number)]
            assert taken == free[:number]
            world.model = [[b for b in t if b not in taken] for t in world.model]
        elif kind == "remove" and number in free:
            world.queue.remove(world.blocks[number])
            world.model = [[b for b in t if b != number] for t in world.model]
        elif kind == "append" and number not in free:
            world.tier[number] = tier
            world.queue.append_n([world.blocks[number]])
            world.model[tier].append(number)
        elif kind == "prepend" and number not in free:
            world.queue.prepend_n([world.blocks[number]])
            world.model[0].insert(0, number)
        elif kind == "retier":
            world.tier[number] = tier
            world.queue.retier(world.blocks[number])
            if number in free and number not in world.model[tier]:
                world.model = [[b for b in t if b != number] for t in world.model]
                world.model[tier].append(number)
        world.check()


def test_an_empty_queue_and_a_block_that_is_not_free_are_refused():
    world = World()
    taken = world.queue.popleft_n(COUNT)
    with pytest.raises(ValueError, match="No free blocks"):
        world.queue.popleft()
    with pytest.raises(RuntimeError, match="invalid block"):
        world.queue.remove(taken[0])
