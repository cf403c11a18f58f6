"""Bulk operations on KV blocks, compared with vLLM's operations on single blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.simulated import engine

pytest.importorskip("vllm")

from vllm import SamplingParams
from vllm.v1.request import Request
from weft_bench.virtual.blocks import work_in_bulk
from weft_bench.virtual.engine import EngineSettings, build_scheduler
from weft_bench.virtual.prompts import PromptBook
from weft_bench.workloads.schema import Part

pytestmark = pytest.mark.engine

BLOCKS = 24


@dataclass
class World:
    """A KV-cache manager and its contexts."""

    manager: Any
    book: PromptBook
    held: dict[int, Any]

    @classmethod
    def make(cls, *, naive: bool, tags: bool) -> World:
        shape = engine(kv_blocks=BLOCKS)
        scheduler = build_scheduler(shape, EngineSettings("fcfs", tags=tags, naive=naive))
        return cls(scheduler.kv_cache_manager, PromptBook(16), {})

    def hold(self, slot: int, name: str, tokens: int) -> Any:
        """Allocate the blocks of a new context, as far as blocks are free."""
        if slot in self.held:
            return None
        prompt = self.book.prompt(name, (Part("system", 32), Part(name, tokens)))
        request = Request(
            f"request-{slot}", [0] * prompt.length, SamplingParams(max_tokens=1), None,
            block_hasher=self.book.hasher(prompt),
        )  # fmt: skip
        hits, cached, junction = self.manager.get_computed_blocks(request)
        found = [block.block_id for group in hits.blocks for block in group]
        fresh = request.num_tokens - cached
        got = self.manager.allocate_slots(request, fresh, cached, hits, full_sequence_must_fit=True)
        if got is not None:
            request.num_computed_tokens = request.num_tokens
            self.held[slot] = request
        return found, cached, junction, got is not None

    def give_back(self, slot: int) -> Any:
        request = self.held.pop(slot, None)
        if request is None:
            return None
        estimate = self.manager.estimate_cached_tokens(request)
        self.manager.free(request)
        return estimate

    def shown(self) -> Any:
        pool = self.manager.block_pool
        free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
        blocks = [(b.ref_cnt, b.block_hash, b.block_hash_num_tokens) for b in pool.blocks]
        cached = {
            key: list(found) if isinstance(found, dict) else [found.block_id]
            for key, found in pool.cached_block_hash_to_block._cache.items()
        }
        return free, blocks, cached


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from("abc"), st.integers(1, 150)), max_size=25
)


@settings(max_examples=40)
@given(STEPS, st.booleans())
def test_bulk_operations_equal_single_ones(steps, tags):
    bulk, plain = (World.make(naive=naive, tags=tags) for naive in (False, True))
    for slot, name, tokens in steps:
        assert bulk.give_back(slot) == plain.give_back(slot)
        assert bulk.shown() == plain.shown()
        assert bulk.hold(slot, name, tokens) == plain.hold(slot, name, tokens)
        assert bulk.shown() == plain.shown()


def test_first_of_two_equal_blocks_is_found():
    """Two calls that compute the same block at once both keep it. The first block is found."""
    world = World.make(naive=False, tags=True)
    world.hold(0, "a", 64)
    request = world.held[0]
    pool = world.manager.block_pool
    (double,) = pool.get_new_blocks(1)
    pool.cache_full_blocks(request, [double], 0, 1, 16, 0)
    found, *_ = world.hold(1, "a", 64)
    assert found[0] != double.block_id
    assert len(found) == 5
    pool.free_blocks([double])
    pool.get_new_blocks(world.manager.block_pool.get_num_free_blocks())
    assert world.give_back(0) == 96


def test_allocation_beyond_the_free_blocks_is_refused():
    world = World.make(naive=False, tags=True)
    with pytest.raises(ValueError, match="free blocks"):
        world.manager.block_pool.get_new_blocks(BLOCKS)


def test_manager_of_another_kind_is_refused():
    world = World.make(naive=False, tags=True)
    with pytest.raises(TypeError, match="full attention"):
        work_in_bulk(world.manager)
