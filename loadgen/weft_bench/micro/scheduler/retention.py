"""Times of tags, priorities and pins: `python -m weft_bench.micro.scheduler.retention`.

One program leaves a context. Another program leaves the same context, which is pinned, raised and
released. vLLM's blocks and queues are real; no model runs. The command prints one JSON object of
milliseconds, each the median of several rounds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock
from weft_engine.compat_kv import FreeBlocks, contents_of
from weft_engine.eviction_policy import EvictionPolicy
from weft_engine.priority_free_queue import PriorityFreeQueue
from weft_engine.tags import Tag, TagSpans

BLOCK = 16


def steps(cache: int, context: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the operations on a context of `context` blocks, in order, in a new cache."""
    blocks = [KVCacheBlock(number) for number in range(cache)]
    free = FreeKVCacheBlockQueue(blocks).get_all_free_blocks()
    kept = EvictionPolicy(
        cache, 0.5, blocks.__getitem__, lambda moved: queue.retier_n(moved), contents_of
    )
    queue = PriorityFreeQueue(lambda: FreeBlocks([]), kept.homes, kept.reused, free)
    used = queue.popleft_n(context)
    # The last block of a context is partial.
    for number, block in enumerate(used[:-1]):
        block._block_hash = number.to_bytes(32)
    end = context * BLOCK
    spans = TagSpans.parse(
        [end // 8, Tag.SYSTEM_PROMPT, end // 2, Tag.TOOL_OUTPUT, end, Tag.USER_QUERY]
    )
    yield "note, first call", lambda: kept.note("p", spans, used, BLOCK)
    yield "free", lambda: queue.append_n(used[-2::-1])
    yield "note, same program", lambda: kept.note("p", spans, used, BLOCK)
    yield "note, other program", lambda: kept.note("q", spans, used, BLOCK)
    yield "retain", lambda: kept.retain("p", 10.0)
    yield "priority", lambda: kept.prioritise("p", 1)
    yield "release", lambda: kept.release("p")
    yield "forget", lambda: kept.forget("p")


def measure(cache: int, context: int, rounds: int) -> dict[str, float]:
    """Return the milliseconds of each operation. cache, context: sizes in blocks."""
    spent: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, action in steps(cache, context):
            begun = perf_counter()
            action()
            spent.setdefault(name, []).append(1000 * (perf_counter() - begun))
    return {name: round(median(times), 3) for name, times in spent.items()}


def main(arguments: list[str] | None = None) -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(
        prog="weft_bench.micro.scheduler.retention", description=__doc__
    )
    parser.add_argument("--cache", type=int, default=100_000, help="blocks in the cache")
    parser.add_argument("--context", type=int, default=8192, help="blocks in a context")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args(arguments)
    print(json.dumps(measure(given.cache, given.context, given.rounds)))


if __name__ == "__main__":
    main()
