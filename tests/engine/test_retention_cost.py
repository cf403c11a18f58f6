"""The scheduler's cost for a long context, counted in function calls of Python."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock
from weft_engine.compat_kv import FreeBlocks, contents_of
from weft_engine.eviction_policy import EvictionPolicy
from weft_engine.priority_free_queue import PriorityFreeQueue
from weft_engine.tags import Tag, TagSpans

pytestmark = pytest.mark.engine

SPANS = TagSpans.parse([16 * 16, Tag.SYSTEM_PROMPT, 32 * 16, Tag.TOOL_OUTPUT])


def calls_of(action: Callable[[], object]) -> int:
    """Count the functions and methods that Python calls, including those in C."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    # A collection would add calls of other objects.
    gc.disable()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


ACTIONS: dict[str, Callable[[EvictionPolicy, list[KVCacheBlock]], object]] = {
    "again": lambda kept, blocks: kept.note("p", SPANS, blocks, 16),
    "other": lambda kept, blocks: kept.note("q", SPANS, blocks, 16),
    "retain": lambda kept, blocks: kept.retain("p", 10.0),
    "priority": lambda kept, blocks: kept.prioritise("p", 1),
    "release": lambda kept, blocks: kept.release("p"),
    "forget": lambda kept, blocks: kept.forget("p"),
}


def spent_on(action: str, count: int) -> int:
    """Return the calls for one action on a program's free context of `blocks` blocks, in vLLM's own
    queues."""
    blocks = [KVCacheBlock(number) for number in range(count)]
    free = FreeKVCacheBlockQueue(blocks).get_all_free_blocks()
    kept = EvictionPolicy(
        count, 1.0, blocks.__getitem__, lambda moved: queue.retier_n(moved), contents_of
    )
    queue = PriorityFreeQueue(lambda: FreeBlocks([]), kept.homes, kept.reused, free)
    used = queue.popleft_n(count)
    # The last block of a context is not full.
    for number, block in enumerate(used[:-1]):
        block._block_hash = number.to_bytes(32)
    for _ in range(2):
        kept.note("p", SPANS, used, 16)
    queue.prepend_n(used[-1:])
    queue.append_n(used[-2::-1])
    if action == "release":
        kept.retain("p", 10.0)
    return calls_of(lambda: ACTIONS[action](kept, used))


@pytest.mark.parametrize("action", ACTIONS)
def test_a_context_costs_calls_by_its_runs_not_by_its_blocks(action):
    """Contexts of 64 and of 8,192 blocks, each in three runs."""
    few, many = spent_on(action, 64), spent_on(action, 8192)
    # Except for objects that are created once, such as new metadata.
    assert many <= few + 20 < 300
