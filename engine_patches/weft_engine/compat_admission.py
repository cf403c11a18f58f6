"""Adapter to vLLM's admission of waiting requests; part of `compat`, for the same release.

A request that vLLM would refuse must not preempt a running one or take the turn of another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.request_queue import RequestQueue, create_request_queue
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import Request, RequestStatus

from weft_engine.compat_prefill import PrefillHooks


class Readiness:
    """Checks at one decision which waiting requests vLLM would admit if slots and blocks were free.
    refused: the number of negative answers."""

    def __init__(self, requests: dict[str, Request], max_loras: int, loras: set[int]) -> None:
        self.refused = 0
        self._requests = requests
        self._max_loras = max_loras
        self._loras = loras

    def __call__(self, sequence: str) -> bool:
        """Whether the request can be admitted. Adapters that are not loaded yet count in the order
        of the calls to this method."""
        request = self._requests[sequence]
        ready = self._complete(request) and self._adapter_fits(request)
        self.refused += not ready
        return ready

    def _complete(self, request: Request) -> bool:
        if request.num_stale_output_tokens and not request.drop_stale_output:
            return False
        if request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
            asked = request.structured_output_request
            grammar = asked.grammar if asked else None
            return grammar is not None and not isinstance(grammar, Exception)
        # A request that holds blocks is in another queue, which vLLM serves first.
        waits = request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        return waits and not request.num_computed_tokens

    def _adapter_fits(self, request: Request) -> bool:
        if not (self._max_loras and request.lora_request):
            return True
        adapter = request.lora_request.lora_int_id
        if adapter not in self._loras and len(self._loras) >= self._max_loras:
            return False
        self._loras.add(adapter)
        return True


class ReorderableQueue(RequestQueue):  # type: ignore[misc]
    """A waiting queue that can remove requests from its middle in O(1), for engines whose tenants
    take turns. Otherwise first come, first served, as in vLLM."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests: OrderedDict[Request, None] = OrderedDict.fromkeys(requests)

    def add_request(self, request: Request) -> None:
        """Append a request."""
        self._requests[request] = None

    def pop_request(self) -> Request:
        """Remove and return the first request. KeyError if the queue is empty."""
        return self._requests.popitem(last=False)[0]

    def peek_request(self) -> Request:
        """Return the first request. IndexError if the queue is empty."""
        for request in self._requests:
            return request
        raise IndexError("peek from an empty queue")

    def prepend_request(self, request: Request) -> None:
        """Move or add a request to the front."""
        self._requests[request] = None
        self._requests.move_to_end(request, last=False)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Put requests at the front, the last of them first."""
        for request in requests:
            self.prepend_request(request)

    def remove_request(self, request: Request) -> None:
        """Remove a request. KeyError if it is missing."""
        del self._requests[request]

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove those of the requests that are in the queue."""
        for request in requests:
            self._requests.pop(request, None)

    def __bool__(self) -> bool:
        return bool(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)


class AdmissionHooks(PrefillHooks):
    """vLLM's scheduler with handles on its next admissions."""

    waiting: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        groups = self.kv_cache_config.kv_cache_groups
        # With one group of full attention, blocks are counted without a call to vLLM.
        self._one_plain_group = (
            len(groups) == 1 and type(groups[0].kv_cache_spec) is FullAttentionSpec
        )
        # Hashes per block.
        self._hashes = max(1, int(self.block_size) // int(self.hash_block_size))

    @property
    def max_num_active_reqs(self) -> int:
        """The limit of running requests. vLLM does not count requests whose KV is being loaded, and
        would begin loads for all waiting requests, whatever their order. They count here before a
        waiting request is admitted; requests that hold blocks are admitted before. 0 if the step
        has no prompt tokens left: vLLM would look a context up and then not admit it."""
        if self.prompt_budget is not None and self.prompt_budget.spent:
            return 0
        return self._most_active - (0 if self.kv_holding_waiting else len(self.loading()))

    @max_num_active_reqs.setter
    def max_num_active_reqs(self, limit: int) -> None:
        """Set vLLM's own limit."""
        self._most_active = limit

    def loading(self) -> list[Request]:
        """Return the requests whose KV is being loaded or has been, and that do not run yet. They
        hold blocks and will need slots."""
        runs = RequestStatus.RUNNING
        return [request for request in self._inflight_prefills if request.status != runs]

    def admits(self) -> bool:
        """Whether vLLM admits waiting requests. It does not while it is paused."""
        return bool(self._pause_state == PauseState.UNPAUSED)

    def readiness(self) -> Readiness:
        """Return the readiness check for this decision."""
        config = self.lora_config
        loras = (
            {r.lora_request.lora_int_id for r in self.running if r.lora_request}
            if config
            else set()
        )
        return Readiness(self.requests, config.max_loras if config else 0, loras)

    def slots(self) -> int:
        """Return how many requests can run at once."""
        return self._most_active

    def free_slots(self) -> int:
        """Return how many requests can be admitted before `max_num_seqs` is reached."""
        held: int = len(self.running) + self.num_waiting_for_streaming_input + len(self.loading())
        return max(0, self._most_active - held)

    def free_blocks(self) -> int:
        """Return the number of unused KV blocks."""
        return int(self.kv_cache_manager.block_pool.get_num_free_blocks())

    def blocks_lacking(self) -> int:
        """Return an upper bound of the KV blocks that running requests may lack in this step; 0 or
        less if no request will be preempted. While blocks suffice for one more of each request,
        this inspects only requests in prefill."""
        slots = 1 + int(self.num_spec_tokens) + int(self.num_lookahead_tokens)
        managers = self.kv_cache_manager.coordinator.single_type_managers
        sizes = [int(manager.block_size) for manager in managers]
        prefills, free, running = self._inflight_prefills, self.free_blocks(), self.running
        needed = 0
        if prefills:
            left = sum(r.num_tokens - r.num_computed_tokens for r in prefills)
            tokens = min(left, int(self.max_num_scheduled_tokens))
            needed += sum(tokens // size for size in sizes)
        most = len(running) * sum(-(-slots // size) for size in sizes)
        if needed + most <= free:
            return needed + most - free
        computed = [int(r.num_computed_tokens) for r in running if r not in prefills]
        for size in sizes:
            needed += (len(running) - len(computed)) * -(-slots // size)
            needed += sum(-(-(n + slots) // size) + (-n // size) for n in computed)
        return needed - free

    def spare_blocks(self) -> int:
        """Return the free KV blocks that a waiting request may take. While a request runs, vLLM
        keeps its watermark free."""
        kept = int(self.kv_cache_manager.watermark_blocks) if self.running else 0
        return self.free_blocks() - kept

    def blocks_needed(self, request: Request, exact_above: int) -> int:
        """Return the free blocks that admitting a waiting request takes, after prefix cache hits.
        The cache is searched only if the request would take more than `exact_above` without
        hits."""
        needed = self.blocks_without_hits(request)
        if needed <= exact_above:
            return needed
        hits, cached, *_ = self.kv_cache_manager.get_computed_blocks(request)
        return self.blocks_with_hits(request, hits.blocks, int(cached))

    def blocks_without_hits(self, request: Request) -> int:
        """Return the free blocks that a waiting request takes without prefix cache hits."""
        if self._one_plain_group:
            return -(-int(request.num_tokens) // int(self.block_size))
        return self._count_blocks(request, self.kv_cache_manager.empty_kv_cache_blocks.blocks, 0)

    def blocks_with_hits(self, request: Request, hits: Sequence[Sequence[Any]], cached: int) -> int:
        """Return the free blocks that a waiting request takes with these hits. hits: cached blocks
        of each group of layers. cached: the tokens that they hold."""
        if not self._one_plain_group:
            return self._count_blocks(request, hits, cached)
        # Admission also takes unused cached blocks off the free list.
        used = sum(block.ref_cnt > 0 for block in (hits[0] if hits else ()))
        return self.blocks_without_hits(request) - int(used)

    def context_blocks(self, sequence: str) -> int:
        """Return the blocks of a request's context, cached or not."""
        return self.blocks_without_hits(self.requests[sequence])

    def context_hashes(self, sequence: str) -> Sequence[bytes]:
        """Return the hashes of the full blocks of a request's context, each of which covers the
        blocks before it."""
        found: Sequence[bytes] = self.requests[sequence].block_hashes
        return found[self._hashes - 1 :: self._hashes] if self._hashes > 1 else found

    def loadable_tokens(self, sequence: str) -> int:
        """Return the tokens of a new request's context that a KV connector would load."""
        request = self.requests[sequence]
        # A preempted request may still have transfers.
        new = request.status == RequestStatus.WAITING and not request.num_computed_tokens
        if self.connector is None or not new:
            return 0
        cached = self.kv_cache_manager.get_computed_blocks(request)[1]
        return int(self.connector.get_num_new_matched_tokens(request, int(cached))[0] or 0)

    def may_fit(self, sequence: str) -> bool:
        """Whether the free blocks may suffice for a waiting request. False is certain."""
        spare = self.spare_blocks()
        return bool(self.blocks_at_least(self.requests[sequence], spare) <= spare)

    def waits_for_blocks(self) -> bool:
        """Whether a slot is free but the first waiting request may lack blocks."""
        first = self.first_waiting()
        return (
            first is not None
            and self.free_slots() > 0
            and self.blocks_without_hits(first) > self.spare_blocks()
        )

    def blocks_held_alone(self, request: Request) -> int:
        """Return the blocks that only this request uses."""
        held = self.kv_cache_manager.get_blocks(request.request_id).blocks
        return int(sum(block.ref_cnt == 1 for group in held for block in group))

    def first_waiting(self) -> Request | None:
        """Return the request that vLLM would admit next."""
        return self.waiting.peek_request() if self.waiting else None

    def waiting_requests(self) -> Iterable[Request]:
        """Iterate over the waiting requests in queue order. Do not change the queue meanwhile."""
        found: Iterable[Request] = iter(self.waiting)
        return found

    def make_reorderable(self, tenant_queues: bool) -> None:
        """Replace the waiting queue by one that supports `bring_forward`, or restore vLLM's own.
        The requests keep their order."""
        waiting = self.waiting
        if tenant_queues:
            self.waiting = ReorderableQueue(waiting)
        else:
            self.waiting = create_request_queue(self.policy)
            self.waiting.extend(waiting)

    def bring_forward(self, names: Sequence[str]) -> None:
        """Move these waiting requests to the front of the queue, in this order. Needs the
        reorderable queue."""
        for name in reversed(names):
            self.waiting.prepend_request(self.requests[name])

    def put_last(self, requests: Sequence[Request]) -> bool:
        """Make these running requests, at least one, the next ones that vLLM preempts when blocks
        run out, the first one first. Returns whether this changed their places."""
        wanted = list(reversed(requests))
        if self.running[-len(wanted) :] == wanted:
            return False
        among = set(wanted)
        self.running[:] = [r for r in self.running if r not in among] + wanted
        return True

    def _count_blocks(self, request: Request, hits: Sequence[Sequence[Any]], cached: int) -> int:
        tokens = min(int(request.num_tokens), int(self.max_model_len))
        return int(
            self.kv_cache_manager.coordinator.get_num_blocks_to_allocate(
                request_id=request.request_id,
                num_tokens=tokens,
                new_computed_blocks=hits,
                num_encoder_tokens=0,
                total_computed_tokens=cached,
                num_local_computed_tokens=cached,
                num_tokens_main_model=tokens,
                apply_admission_cap=True,
                prefill_end=max(int(request.num_prompt_tokens), int(request.num_tokens) - 1),
            )
        )
