"""The one place that touches vLLM's private names, for the one release it was tested with.

Everything else in the plugin speaks to `SchedulerHooks`, whose methods are ours.
"""

from __future__ import annotations

import importlib.util
import logging
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from itertools import compress, islice
from typing import Any

from engine_patches.release import check_version, installed_version

Rank = tuple[int, float, int]

logger = logging.getLogger("vllm.weft")


def warn_of_kernels_package() -> str:
    """Warn when a Hugging Face distribution named `kernels` is installed: its import name is
    ours, and transformers then imports ours in its place. Returns the warning, "" if all is well.
    """
    try:
        found = version("kernels")
    except PackageNotFoundError:
        return ""
    spec = importlib.util.find_spec("kernels")
    origin = spec.origin if spec else "nothing"
    message = (
        f"a package named 'kernels' ({found}) is installed beside Weft, which has a folder of "
        f"that name; `import kernels` now gives {origin}. Remove it: pip uninstall kernels"
    )
    logger.warning(message)
    return message


check_version(installed_version())

from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: E402
    KVConnectorBase_V1 as KVConnectorBase,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: E402
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.v1.core.kv_cache_utils import (  # noqa: E402
    FreeKVCacheBlockQueue,
    make_block_hash_with_group_id,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.output import SchedulerOutput  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402

from engine_patches.admission import AdmissionHooks  # noqa: E402
from engine_patches.tiers import TieredFreeQueue  # noqa: E402
from engine_patches.warmth import Context  # noqa: E402

__all__ = [
    "FreeBlocks",
    "KVConnectorBase",
    "KVConnectorMetadata",
    "KVConnectorRole",
    "Request",
    "SchedulerHooks",
    "SchedulerOutput",
    "block_key",
    "bytes_per_block",
    "contents_of",
    "rearranged",
    "swap_workers",
    "tokens_per_block",
    "warn_of_kernels_package",
]


def bytes_per_block(kv_cache_config: Any) -> int:
    """Bytes of one KV block over all layers of one worker. ValueError for models whose layers fall
    into several groups of blocks, or differ in size: the scheduler is told the size of one."""
    groups = kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        raise ValueError(f"KV swap needs one group of layers; this model has {len(groups)}")
    spec = groups[0].kv_cache_spec
    sizes = {each.page_size_bytes for each in getattr(spec, "kv_cache_specs", {"": spec}).values()}
    if len(sizes) != 1:
        raise ValueError(f"KV swap needs layers of one size; this model has {sorted(sizes)} bytes")
    return int(sizes.pop()) * len(groups[0].layer_names)


def tokens_per_block(kv_cache_config: Any, vllm_config: Any) -> int:
    """Tokens in a block as the scheduler counts them: of all ranks that share a context."""
    return int(resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)[0])


def swap_workers(vllm_config: Any) -> int:
    """Workers that each hold a part of every block. ValueError where they hold different layers:
    their blocks, and so their buffers, would differ in size."""
    parallel = vllm_config.parallel_config
    if parallel.pipeline_parallel_size != 1:
        raise ValueError("KV swap does not work with pipeline parallelism; set swap_gib to 0")
    return int(parallel.tensor_parallel_size)


def block_key(block_hash: Any) -> Any:
    """What a block of the first group with this hash calls itself."""
    return make_block_hash_with_group_id(block_hash, 0)


def contents_of(blocks: Sequence[Any]) -> list[Any]:
    """What each block calls itself; None where nothing full is in it."""
    # Its property of this name takes three times as long, for each block of each context.
    return [block._block_hash for block in blocks]


def rearranged(
    requests: Iterable[Request], rank: Callable[[str], Rank], moved: set[Request]
) -> list[Request]:
    """The requests by rank, the best first. moved: those of them that may not be in their place;
    the others are in order. Equal ranks stay as they are, where those are moved together."""
    ordered = list(requests)
    # What came was put at an end; only for what was moved in between all are looked at.
    head, tail = 0, len(ordered)
    while head < tail and ordered[head] in moved:
        head += 1
    while tail > head and ordered[tail - 1] in moved:
        tail -= 1
    between: Sequence[int] = ()
    if head + len(ordered) - tail < len(moved):
        # Without a step of Python for each, of which there may be thousands.
        found = map(moved.__contains__, islice(ordered, head, tail))
        between = list(compress(range(head, tail), found))
    strays = ordered[:head] + [ordered[i] for i in between] + ordered[tail:]
    if len(strays) * 8 > len(ordered):
        ordered.sort(key=lambda r: rank(r.request_id))
        return ordered
    del ordered[tail:]
    for index in reversed(between):
        del ordered[index]
    del ordered[:head]
    for stray in strays:
        insort(ordered, stray, key=lambda r: rank(r.request_id))
    return ordered


class FreeBlocks(FreeKVCacheBlockQueue):  # type: ignore[misc]
    """vLLM's queue of free blocks, from which blocks of a context can be taken together."""

    def remove_n(self, blocks: Sequence[Any]) -> None:
        """Take out blocks that are in it. They were freed last to first, so most neighbours of the
        context are neighbours here."""
        index, count = 0, len(blocks)
        while index < count:
            last = blocks[index]
            after = last.next_free_block
            before = last.prev_free_block
            last.prev_free_block = last.next_free_block = None
            index += 1
            while index < count and blocks[index] is before:
                block, before = before, before.prev_free_block
                block.prev_free_block = block.next_free_block = None
                index += 1
            before.next_free_block, after.prev_free_block = after, before
        self.num_free_blocks -= count


class SchedulerHooks(AdmissionHooks):
    """vLLM's scheduler with the few handles that an order needs, under names of our own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        policy = str(getattr(self.policy, "value", self.policy))
        if policy != "fcfs":
            raise ValueError(
                f"Weft's scheduler sorts vLLM's fcfs queue itself; start the engine without "
                f"--scheduling-policy {policy}"
            )

    def on_preempted(self, request: Request, computed: int) -> None:
        """Called when a running request was put back, by us or by vLLM. computed: tokens whose
        KV it held."""

    def _preempt_request(
        self, request: Request, timestamp: float, *args: Any, **kwargs: Any
    ) -> None:
        computed = int(request.num_computed_tokens)
        super()._preempt_request(request, timestamp, *args, **kwargs)
        self.on_preempted(request, computed)

    def on_freeing(self, request: Request) -> None:
        """Called when a request is about to give its KV blocks back, finished or preempted."""

    def _free_request_blocks(self, request: Request) -> Any:
        self.on_freeing(request)
        return super()._free_request_blocks(request)

    def on_queued(self, request: Request) -> None:
        """Called when a request was put at the end of a waiting queue."""

    def _enqueue_waiting_request(self, request: Request) -> None:
        super()._enqueue_waiting_request(request)
        self.on_queued(request)

    def blocks_of(self, request: Request) -> list[list[Any]]:
        """The request's KV blocks, first to last, a list for each group of layers."""
        return [
            list(group) for group in self.kv_cache_manager.get_blocks(request.request_id).blocks
        ]

    def kv_blocks(self) -> list[Any]:
        """All blocks of the cache; a block's index is its id."""
        found: list[Any] = self.kv_cache_manager.block_pool.blocks
        return found

    def block_sizes(self) -> list[int]:
        """Tokens in a block, for each group of layers."""
        managers = self.kv_cache_manager.coordinator.single_type_managers
        return [int(manager.block_size) for manager in managers]

    def tier_free_blocks(
        self,
        tiers: int,
        tiers_of: Callable[[Sequence[Any]], Sequence[int]],
        on_reuse: Callable[[Sequence[Any]], None],
    ) -> TieredFreeQueue:
        """Put a tiered queue in the place of vLLM's queue of free blocks."""
        pool = self.kv_cache_manager.block_pool
        free = pool.free_block_queue.get_all_free_blocks()
        queue = TieredFreeQueue(lambda: FreeBlocks([]), tiers, tiers_of, on_reuse, free)
        pool.free_block_queue = queue
        return queue

    def on_cache_emptied(self, entirely: bool) -> None:
        """Called when blocks may have lost what they held without being reused. entirely: all of
        them have."""

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> bool:
        """vLLM empties the cache, for us or for itself (new weights, a pause, its own route)."""
        emptied = bool(super().reset_prefix_cache(*args, **kwargs))
        self.on_cache_emptied(emptied)
        return emptied

    def displace(self, request: Request, now: float) -> None:
        """Take a running request out of the batch and put it back into the waiting queue."""
        # Who gives way is among the last.
        at = next(i for i in reversed(range(len(self.running))) if self.running[i] is request)
        del self.running[at]
        self._preempt_request(request, now, drop_stale_output=self.requires_kv_delivery)
        # It may be scheduled again in this very step: the model runner must then treat it as
        # resumed, not as one that it still holds from the step before.
        self.prev_step_scheduled_req_ids.discard(request.request_id)

    def can_be_displaced(self, request: Request) -> bool:
        """Whether the request is in a state that vLLM can preempt and resume."""
        return bool(request.status == RequestStatus.RUNNING) and not request.resumable

    def sort_queues(
        self, rank: Callable[[str], Rank], moved: set[str], *, waiting_too: bool = True
    ) -> None:
        """Bring the waiting queue and the running list in order, best rank first; vLLM takes the
        last that runs when blocks run out. moved: all that may not be in their place. waiting_too:
        False leaves the waiting queue as it is."""
        alive = {self.requests[name] for name in moved if name in self.requests}
        running = {r for r in alive if r.status == RequestStatus.RUNNING}
        if running:
            self.running[:] = rearranged(self.running, rank, running)
        if waiting_too and len(running) < len(alive) and len(self.waiting) > 1:
            waiting = alive - running
            ordered = rearranged(self.waiting, rank, waiting)
            self.waiting.clear()
            self.waiting.extend(ordered)

    def started(self, output: SchedulerOutput) -> list[str]:
        """Ids of requests that came from the waiting queue into this step."""
        names = [new.req_id for new in output.scheduled_new_reqs]
        names.extend(output.scheduled_cached_reqs.resumed_req_ids)
        return names

    def context_of(self, sequence: str) -> Context:
        """What the prefix cache has and lacks of a waiting request's context, and the free blocks
        that admitting the request takes."""
        request = self.requests[sequence]
        length = int(request.num_tokens)
        if not self.kv_cache_manager.prefix_cache_lookup_enabled(request):
            return Context(0, length, self.blocks_without_hits(request))
        hits, cached, _ = self.kv_cache_manager.coordinator.find_longest_cache_hit(
            request.block_hashes, length - 1
        )
        needed = self.blocks_with_hits(request, hits, int(cached))
        return Context(int(cached), length - int(cached), needed)

    def still_cached(self, sequence: str, tokens: int) -> bool:
        """Whether the prefix cache has still the end of so many tokens of a waiting request's
        context, and not more. Never for models with several groups of layers."""
        if len(self.kv_cache_config.kv_cache_groups) > 1:
            return False
        request = self.requests[sequence]
        found = self.kv_cache_manager.block_pool.get_cached_block
        hashes, end = request.block_hashes, tokens // self.block_size
        if end and found(hashes[end - 1], [0]) is None:
            return False
        last = min(len(hashes), (int(request.num_tokens) - 1) // self.block_size)
        return end >= last or found(hashes[end], [0]) is None

    def chain_of(self, sequence: str) -> Sequence[Any]:
        """A hash for each full block of a request's tokens, of it and of all before it. vLLM's own
        list, which grows with the request."""
        found: Sequence[Any] = self.requests[sequence].block_hashes
        return found

    def waiting_names(self) -> Iterable[str]:
        """Ids of the requests in the waiting queue, first to last."""
        return (request.request_id for request in self.waiting)

    def waiting_count(self) -> int:
        """Requests in the waiting queue."""
        return len(self.waiting)

    def running_count(self) -> int:
        """Requests in the batch."""
        return len(self.running)

    @contextmanager
    def admitting(self, at_most: int | None) -> Iterator[None]:
        """While vLLM schedules in here it admits so many waiting requests at most."""
        limit = self.max_num_active_reqs
        if at_most is not None:
            held = len(self.running) + self.num_waiting_for_streaming_input
            self.max_num_active_reqs = min(limit, held + at_most)
        try:
            yield
        finally:
            self.max_num_active_reqs = limit

    def forget_cache(self) -> bool:
        """Empty the prefix cache, preempting what runs. Returns whether it is empty: where steps
        in flight may still write to blocks, it is not until nothing runs."""
        preempt = bool(self.running) and not self.defer_block_free
        emptied = bool(self.reset_prefix_cache(reset_running_requests=preempt))
        return emptied and bool(self.reset_connector_cache())

    def extra_args_of(self, request: Request) -> dict[str, Any] | None:
        """The `vllm_xargs` that the request came with."""
        params = request.sampling_params
        return None if params is None else params.extra_args

    def cached_tokens_of(self, request: Request) -> int:
        """Prompt tokens that the prefix cache gave the request when it was first scheduled; 0
        once vLLM has handed its prefill statistics out."""
        stats = request.prefill_stats
        return 0 if stats is None else int(stats.num_cached_tokens)

    def prefix_cached(self) -> bool:
        """Whether full blocks of a displaced request stay findable until they are reused."""
        return bool(self.kv_cache_manager.enable_caching)
