"""Adapter to vLLM's private names, for the one release that the plugin was tested with.

The rest of the plugin uses `SchedulerHooks` and its public methods.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import Any, Final

from weft_engine.version_check import check_version, installed_version

check_version(installed_version())

from vllm.v1.core.sched.output import SchedulerOutput  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402

from weft_engine.block_metadata import Home  # noqa: E402
from weft_engine.call_state import Rank  # noqa: E402
from weft_engine.compat_admission import AdmissionHooks  # noqa: E402
from weft_engine.compat_kv import (  # noqa: E402
    PREFIX_SPECS,
    FreeBlocks,
    block_key,
    comes_from_elsewhere,
)
from weft_engine.priority_free_queue import PriorityFreeQueue  # noqa: E402

__all__ = [
    "Request",
    "SchedulerHooks",
    "SchedulerOutput",
    "check_start",
    "rearrange",
]


def check_start(vllm_config: Any, channel: str) -> None:
    """Raise ValueError if call reports could get lost: the channel connects one API server with
    engine cores on the same machine."""
    if not channel:
        return
    parallel = vllm_config.parallel_config
    servers = int(parallel._api_process_count)
    if servers > 1:
        raise ValueError(
            f"Weft's report channel serves one API server, and {servers} were started; call "
            "reports would be lost: add --api-server-count 1"
        )
    elsewhere = parallel.data_parallel_size - parallel.data_parallel_size_local
    if elsewhere > 0 and not parallel.local_engines_only and channel.startswith("ipc:"):
        raise ValueError(
            f"{elsewhere} engine cores run on other machines, which Weft's report channel "
            f"({channel}) does not reach: run one API server per machine, each as a replica "
            "(--data-parallel-external-lb or --data-parallel-hybrid-lb)"
        )


# Up to this many requests are moved inside vLLM's deque.
_FEW: Final = 8


def rearrange(
    requests: MutableSequence[Request], rank: Callable[[str], Rank], moved: set[Request]
) -> None:
    """Sort requests by rank, best first. moved: the requests that may be out of place; the others
    are in order. Equal ranks keep their order if they are moved together."""

    def key(request: Request) -> Rank:
        return rank(request.request_id)

    # Most moved requests are at one end. The middle is scanned only for the others.
    strays = []
    while requests and requests[0] in moved:
        strays.append(requests[0])
        del requests[0]
    at_end = []
    while requests and requests[-1] in moved:
        at_end.append(requests.pop())
    if len(strays) + len(at_end) < len(moved):
        # There may be thousands of requests, so avoid a Python loop.
        between = list(compress(range(len(requests)), map(moved.__contains__, requests)))
        strays += [requests[at] for at in between]
        for at in reversed(between):
            del requests[at]
    strays += reversed(at_end)
    if len(strays) * 8 > len(requests):
        ordered = sorted([*requests, *strays], key=key)
        requests.clear()
        requests.extend(ordered)
    else:
        for stray in strays:
            insort(requests, stray, key=key)


class SchedulerHooks(AdmissionHooks):
    """vLLM's scheduler with public handles for orders."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        policy = str(getattr(self.policy, "value", self.policy))
        if policy != "fcfs":
            raise ValueError(
                f"Weft's scheduler sorts vLLM's fcfs queue: start the engine without "
                f"--scheduling-policy {policy}"
            )

    def on_preempted(self, request: Request, computed: int) -> None:
        """Called when Weft or vLLM has preempted a running request. computed: tokens whose KV the
        request held."""

    def _preempt_request(
        self, request: Request, timestamp: float, *args: Any, **kwargs: Any
    ) -> None:
        computed = int(request.num_computed_tokens)
        super()._preempt_request(request, timestamp, *args, **kwargs)
        self.on_preempted(request, computed)

    def on_finished(self, request: Request) -> None:
        """Called when a request has finished or was aborted, before its blocks are freed."""

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self.on_finished(request)
        return super()._free_request(request, *args, **kwargs)

    def on_freeing(self, request: Request) -> None:
        """Called before a finished or preempted request frees its KV blocks."""

    def _free_request_blocks(self, request: Request) -> Any:
        self.on_freeing(request)
        return super()._free_request_blocks(request)

    def on_queued(self, request: Request) -> None:
        """Called when a request was added to the end of a waiting queue."""

    def _enqueue_waiting_request(self, request: Request) -> None:
        super()._enqueue_waiting_request(request)
        self.on_queued(request)

    def blocks_of(self, request: Request) -> list[list[Any]]:
        """Return the request's KV blocks in order, one list per group of layers."""
        return [
            list(group) for group in self.kv_cache_manager.get_blocks(request.request_id).blocks
        ]

    def kv_blocks(self) -> list[Any]:
        """Return all blocks of the cache. A block's index is its id."""
        found: list[Any] = self.kv_cache_manager.block_pool.blocks
        return found

    def block_sizes(self) -> list[int]:
        """Return the tokens per block of each group of layers."""
        managers = self.kv_cache_manager.coordinator.single_type_managers
        return [int(manager.block_size) for manager in managers]

    def tier_free_blocks(
        self,
        homes_of: Callable[[Sequence[Any]], Sequence[Home]],
        on_reuse: Callable[[Sequence[Any]], None],
        weight: Callable[[str | None, int], float],
        ages: float,
    ) -> PriorityFreeQueue:
        """Replace vLLM's queue of free blocks by a priority queue. Arguments as for
        PriorityFreeQueue."""
        pool = self.kv_cache_manager.block_pool
        free = pool.free_block_queue.get_all_free_blocks()
        grain = max(1, len(pool.blocks) // 1024)
        queue = PriorityFreeQueue(
            lambda: FreeBlocks([]), homes_of, on_reuse, free, weight=weight, ages=ages, grain=grain
        )
        pool.free_block_queue = queue
        return queue

    def on_cache_emptied(self, entirely: bool) -> None:
        """Called when blocks may have lost their content without being reused. entirely: all of
        them have."""

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> bool:
        """Empty the cache. vLLM calls this too (new weights, a pause, its own route)."""
        emptied = bool(super().reset_prefix_cache(*args, **kwargs))
        self.on_cache_emptied(emptied)
        return emptied

    def preempt(self, request: Request, now: float) -> None:
        """Preempt a running request: remove it from the batch and put it back into the waiting
        queue."""
        # Requests to preempt are near the end of the list.
        at = next(i for i in reversed(range(len(self.running))) if self.running[i] is request)
        del self.running[at]
        self._preempt_request(request, now, drop_stale_output=self.requires_kv_delivery)
        # The step may schedule it again. The model runner must then treat it as resumed, and not as
        # a request of the previous step.
        self.prev_step_scheduled_req_ids.discard(request.request_id)

    def can_be_preempted(self, request: Request) -> bool:
        """Whether vLLM can preempt and resume the request in its present state."""
        return bool(request.status == RequestStatus.RUNNING) and not request.resumable

    def sort_queues(
        self, rank: Callable[[str], Rank], moved: set[str], *, waiting_too: bool = True
    ) -> None:
        """Sort the waiting queue and the running list, best rank first. vLLM preempts the last
        running request when blocks run out. moved: all sequences that may be out of place.
        waiting_too: False leaves the waiting queue unsorted."""
        alive = {self.requests[name] for name in moved if name in self.requests}
        running = {r for r in alive if r.status == RequestStatus.RUNNING}
        if running:
            rearrange(self.running, rank, running)
        waiting = alive - running if waiting_too else set()
        if 0 < len(waiting) <= _FEW:
            rearrange(self.waiting, rank, waiting)
        elif waiting:
            # Many insertions into the middle of a deque are slow.
            ordered = list(self.waiting)
            rearrange(ordered, rank, waiting)
            self.waiting.clear()
            self.waiting.extend(ordered)

    def started(self, output: SchedulerOutput) -> list[str]:
        """Return the ids of requests that this step took from the waiting queue."""
        names = [new.req_id for new in output.scheduled_new_reqs]
        names.extend(output.scheduled_cached_reqs.resumed_req_ids)
        return names

    def blocks_taken(self, output: SchedulerOutput) -> Iterator[tuple[str, list[int]]]:
        """Yield the requests that may have taken blocks in this step, with their new blocks and
        others that they hold."""
        for new in output.scheduled_new_reqs:
            yield new.req_id, [number for group in new.block_ids for number in group]
        cached = output.scheduled_cached_reqs
        for name, groups in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if groups is not None:
                yield name, [number for group in groups for number in group]
        for request in self.loading():
            held = self.blocks_of(request)
            yield request.request_id, [block.block_id for group in held for block in group]

    def missing_keys(self, request: Request, tokens: int) -> Iterable[Any]:
        """Iterate in order over the keys of the full blocks of a request's prompt behind its first
        `tokens`; over none if blocks have several hashes."""
        size = self.block_sizes()[0]
        if size != self.hash_block_size:
            return ()
        last = int(request.num_prompt_tokens) // size
        return map(block_key, request.block_hashes[tokens // size : last])

    def blocks_to_take(self, sequence: str) -> int:
        """Return the free blocks that admitting a waiting request takes, by a search that is
        cheaper than vLLM's, with plain prefix caching."""
        request = self.requests[sequence]
        elsewhere = comes_from_elsewhere(request)
        if elsewhere or not self.kv_cache_manager.prefix_cache_lookup_enabled(request):
            return self.blocks_without_hits(request)
        length = int(request.num_tokens)
        hits = self._prefix_of(request, length - 1)
        # Admission also takes unused cached blocks off the free list. A request that uses a block
        # uses all blocks before it.
        used = bisect_left(hits, True, key=lambda at: not self._in_use(request, at))
        return int(-(-length // self.block_size) - used)

    def blocks_at_least(self, request: Request, exact_above: int) -> int:
        """Return a lower bound of `blocks_needed`. With plain prefix caching, this inspects only a
        few blocks of the context."""
        if not self._cached_from_the_first():
            return self.blocks_needed(request, exact_above)
        needed = self.blocks_without_hits(request)
        return needed if needed <= exact_above else self.blocks_to_take(request.request_id)

    def _cached_from_the_first(self) -> bool:
        """Whether a cached block is useful only with all blocks before it: full attention in all
        layers, with one hash per block."""
        groups = self.kv_cache_config.kv_cache_groups
        return (
            len(groups) == 1
            and type(groups[0].kv_cache_spec) in PREFIX_SPECS
            and self.hash_block_size == self.block_size
        )

    def _prefix_of(self, request: Request, tokens: int) -> range:
        """Return the indices of the cached blocks at the start of a context of this many tokens. A
        binary search finds the boundary in a few lookups, because the end of a context is reused
        before its beginning. If a block in the middle is missing, the result may include blocks
        after it."""
        last = min(len(request.block_hashes), tokens // self.block_size)
        end = bisect_left(range(last), True, key=lambda at: self._cached(request, at) is None)
        return range(end)

    def _cached(self, request: Request, at: int) -> Any:
        """Return the cached block with the content of the context's block `at`; None if it is not
        cached."""
        found = self.kv_cache_manager.block_pool.get_cached_block(request.block_hashes[at], [0])
        return None if found is None else found[0]

    def _in_use(self, request: Request, at: int) -> bool:
        # A block in the middle may be missing.
        found = self._cached(request, at)
        return found is not None and found.ref_cnt > 0

    def waiting_names(self) -> Iterable[str]:
        """Return the ids of the waiting requests in queue order."""
        return (request.request_id for request in self.waiting)

    def running_count(self) -> int:
        """Return the number of requests in the batch."""
        return len(self.running)

    @contextmanager
    def admitting(self, at_most: int | None) -> Iterator[None]:
        """Limit the waiting requests that vLLM admits inside this context. None: no further
        limit."""
        limit = self._most_active
        if at_most is not None:
            held = len(self.running) + self.num_waiting_for_streaming_input + len(self.loading())
            self._most_active = min(limit, held + at_most)
        try:
            yield
        finally:
            self._most_active = limit

    def forget_cache(self) -> bool:
        """Empty the prefix cache and preempt running requests. Returns whether the cache is empty.
        If steps in flight may still write to blocks, it is not empty until no request runs."""
        # vLLM refuses to preempt all while a waiting request holds blocks for KV that is loaded.
        preempt = bool(self.running) and not self.defer_block_free and not self.loading()
        emptied = bool(self.reset_prefix_cache(reset_running_requests=preempt))
        return emptied and bool(self.reset_connector_cache())

    def extra_args_of(self, request: Request) -> dict[str, Any] | None:
        """Return the `vllm_xargs` of the request."""
        params = request.sampling_params
        return None if params is None else params.extra_args

    def cached_tokens_of(self, request: Request) -> int:
        """Return the prompt tokens that the request found in the prefix cache when it was first
        scheduled; 0 after vLLM has handed out its prefill statistics."""
        stats = request.prefill_stats
        return 0 if stats is None else int(stats.num_cached_tokens)

    def missing_tokens_of(self, sequence: str) -> tuple[int, int]:
        """Return the prompt tokens of a request that starts which it has to compute, and those that
        a KV connector has loaded; 0 after vLLM has handed out its prefill statistics."""
        stats = self.requests[sequence].prefill_stats
        if stats is None:
            return 0, 0
        return int(stats.num_computed_tokens), int(stats.num_external_cached_tokens)

    def prefix_cached(self) -> bool:
        """Whether the full blocks of a preempted request stay in the prefix cache until they are
        reused."""
        return bool(self.kv_cache_manager.enable_caching)
