"""What tags, priorities and pins cost the scheduler: `python -m loadgen.scheduler.retention`.

One program leaves a context; another one leaves the same, and it is pinned, raised and released.
vLLM's blocks and queues are real, no model runs. Prints one JSON object of milliseconds, each the
median of several rounds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from statistics import median
from time import perf_counter

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock

from engine_patches.compat_kv import FreeBlocks, contents_of
from engine_patches.retention import Retention
from engine_patches.tags import Tag, TagSpans
from engine_patches.tiers import TieredFreeQueue

BLOCK = 16


def measure(cache: int, context: int, rounds: int) -> dict[str, float]:
    """Milliseconds of each step, for a cache and a context of so many blocks."""
    spent: dict[str, list[float]] = {}

    def timed(name: str, action: Callable[[], object]) -> None:
        begun = perf_counter()
        action()
        spent.setdefault(name, []).append(1000 * (perf_counter() - begun))

    for _ in range(rounds):
        blocks = [KVCacheBlock(number) for number in range(cache)]
        free = FreeKVCacheBlockQueue(blocks).get_all_free_blocks()
        kept = Retention(
            cache, 0.5, blocks.__getitem__, lambda moved: queue.retier_n(moved), contents_of
        )
        queue = TieredFreeQueue(lambda: FreeBlocks([]), kept.homes, kept.reused, free)
        used = queue.popleft_n(context)
        for number, block in enumerate(used):
            block._block_hash = number.to_bytes(32)
        end = context * BLOCK
        spans = TagSpans.parse(
            [end // 8, Tag.SYSTEM_PROMPT, end // 2, Tag.TOOL_OUTPUT, end, Tag.USER_QUERY]
        )
        timed("note, first call", lambda k=kept, u=used: k.note("p", spans, u, BLOCK))
        timed("free", lambda q=queue, u=used: q.append_n(u[::-1]))
        timed("note, same program", lambda k=kept, u=used: k.note("p", spans, u, BLOCK))
        timed("note, other program", lambda k=kept, u=used: k.note("q", spans, u, BLOCK))
        timed("retain", lambda k=kept: k.retain("p", 10.0))
        timed("priority", lambda k=kept: k.prioritise("p", 1))
        timed("release", lambda k=kept: k.release("p"))
        timed("forget", lambda k=kept: k.forget("p"))
    return {name: round(median(times), 3) for name, times in spent.items()}


def main(arguments: list[str] | None = None) -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(prog="loadgen.scheduler.retention", description=__doc__)
    parser.add_argument("--cache", type=int, default=100_000, help="blocks in the cache")
    parser.add_argument("--context", type=int, default=8192, help="blocks in a context")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args(arguments)
    print(json.dumps(measure(given.cache, given.context, given.rounds)))


if __name__ == "__main__":
    main()
