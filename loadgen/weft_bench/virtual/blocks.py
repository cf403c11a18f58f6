"""vLLM's KV-cache manager with bulk operations on the blocks of a context.

A context of 8,000 tokens has 500 blocks. For each one vLLM makes a method call or two to look it
up, take it from the free list, count its users and return it. These classes take the same steps in
tight loops. Tests verify that the blocks, their order in the free list and the records are equal.
Supports only the simulator's configuration: one group of layers with full attention, no events, no
metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, takewhile
from typing import Any

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from weft_engine.compat_kv import FreeBlocks
from weft_engine.priority_free_queue import PriorityFreeQueue


def work_in_bulk(manager: KVCacheManager) -> None:
    """Switch this manager, its block pool and its group to the bulk classes.

    Raises TypeError if they have other classes than those the simulator creates.
    """
    pool, groups = manager.block_pool, manager.coordinator.single_type_managers
    plain = type(manager) is KVCacheManager and type(pool) is BlockPool
    if not plain or [type(group) for group in groups] != [FullAttentionManager]:
        raise TypeError("only one group with full attention works in bulk")
    # vLLM creates these objects itself and has no parameter for their classes.
    manager.__class__ = BulkManager
    pool.__class__ = BulkPool
    groups[0].__class__ = BulkGroup


class BulkManager(KVCacheManager):  # type: ignore[misc]
    """Looks up cached blocks by the `block_keys` of a request.

    `block_keys` are the keys of all full blocks of the request in vLLM's cache, in order.
    """

    def get_computed_blocks(self, request: Any) -> tuple[KVCacheBlocks, int, int]:
        """Return the longest run of cached blocks from the start, without the last token."""
        if not self.prefix_cache_lookup_enabled(request):
            return self.empty_kv_cache_blocks, 0, 0
        size = self.block_pool.hash_block_size
        cached = self.block_pool.cached_block_hash_to_block._cache.get
        keys = islice(request.block_keys, (request.num_tokens - 1) // size)
        found = list(takewhile(bool, map(cached, keys)))
        if dict in map(type, found):
            # Several blocks have the same content: use the first.
            found = [next(iter(b.values())) if type(b) is dict else b for b in found]
        return self.create_kv_cache_blocks((found,)), len(found) * size, 0

    def grow(self, request: Any, tokens: int) -> None:
        """Allocate blocks for more tokens of a running request and cache full ones.

        Works like `allocate_slots`. tokens: how many more. The caller makes sure that enough blocks
        are free.
        """
        name, (group,) = request.request_id, self.coordinator.single_type_managers
        size, blocks = group.block_size, group.req_to_blocks[name]
        end = request.num_computed_tokens + tokens
        missing = -(-end // size) - len(blocks)
        if missing > 0:
            blocks += self.block_pool.get_new_blocks(missing)
        full = min(end, request.num_tokens) // size
        if group.enable_caching:
            before = group.num_cached_block.get(name, 0)
            if before < full:
                self.block_pool.cache_full_blocks(request, blocks, before, full, size, 0)
                group.num_cached_block[name] = full

    def estimate_cached_tokens(self, request: Any) -> int:
        """Return the tokens up to the last full, cached block; no later block is cached."""
        for block in reversed(self.get_blocks(request.request_id).blocks[0]):
            if block._block_hash_num_tokens:
                return int(block._block_hash_num_tokens)
        return 0


class BulkGroup(FullAttentionManager):  # type: ignore[misc]
    """Counts the unused blocks."""

    @classmethod
    def _get_num_evictable_blocks(cls, blocks: Sequence[Any]) -> int:
        return [block.ref_cnt for block in blocks].count(0)


class BulkPool(BlockPool):  # type: ignore[misc]
    """Takes and returns the blocks of a context in bulk."""

    def touch(self, blocks: Sequence[Any]) -> None:
        """Add a user to these blocks and take free ones off the free list."""
        free = [block for block in blocks if not block.ref_cnt]
        for block in blocks:
            block.ref_cnt += 1
        queue = self.free_block_queue
        if isinstance(queue, PriorityFreeQueue):
            queue.remove_n(free)
        else:
            FreeBlocks.remove_n(queue, free)

    def free_blocks(self, ordered_blocks: Iterable[Any]) -> None:
        """Remove a user from these blocks. The first block is reused first."""
        blocks = list(ordered_blocks)
        for block in blocks:
            block.ref_cnt -= 1
        free = [block for block in blocks if not block.ref_cnt]
        kept = [block for block in free if block._block_hash is not None]
        if len(kept) < len(free):
            self.free_block_queue.prepend_n([block for block in free if block._block_hash is None])
        self.free_block_queue.append_n(kept)

    def get_new_blocks(self, num_blocks: int) -> list[Any]:
        """Return free blocks in order of reuse and drop their content from the cache."""
        if num_blocks > self.free_block_queue.num_free_blocks:
            raise ValueError(f"Cannot get {num_blocks} free blocks from the pool")
        taken: list[Any] = self.free_block_queue.popleft_n(num_blocks)
        cache = self.cached_block_hash_to_block._cache
        for block in taken:
            block.ref_cnt = 1
            key = block._block_hash
            if key is not None:
                if cache.get(key) is block:
                    del cache[key]
                else:
                    self.cached_block_hash_to_block.pop(key, block.block_id)
                block._block_hash = block._block_hash_num_tokens = None
        return taken

    def cache_full_blocks(
        self,
        request: Any,
        blocks: list[Any],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: list[bool] | None = None,
    ) -> None:
        """Add the blocks that became full to the cache."""
        known = self.cached_block_hash_to_block
        fresh = blocks[num_cached_blocks:num_full_blocks]
        keys = request.block_keys[num_cached_blocks:num_full_blocks]
        tokens = num_cached_blocks * block_size
        for block, key in zip(fresh, keys, strict=True):
            tokens += block_size
            block._block_hash, block._block_hash_num_tokens = key, tokens
            if key in known._cache:
                known.insert(key, block)
            else:
                known._cache[key] = block
