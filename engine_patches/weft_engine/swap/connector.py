"""A KV connector that copies blocks of preempted calls to host memory.

`--kv-transfer-config '{"kv_connector": "SwapConnector", "kv_role": "kv_both",
"kv_connector_module_path": "weft_engine.swap.connector", "kv_connector_extra_config": {"swap_gib":
4}}'`

vLLM uses one class in two roles. In the scheduler's process the connector plans the copies: out
when a running sequence is preempted, in when vLLM asks for the known part of a waiting sequence's
context. In the worker it copies: first out, before the step's work (`handle_preemptions`), then in
(`start_load_kv`). So each block is saved before it is overwritten, and each slot is read before it
is reused. Blocks that the buffer has dropped are computed again; no call waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from weft_kernels.host import host_buffer
from weft_kernels.layers import KVLayers, prepare
from weft_kernels.swap import swap_in, swap_out, warm_up

from weft_engine.compat_kv import (
    KVConnectorBase,
    KVConnectorMetadata,
    KVConnectorRole,
    Request,
    SchedulerOutput,
    block_key,
    by_blocks,
    bytes_per_block,
    connectors_of,
    swap_workers,
    tokens_per_block,
)
from weft_engine.swap.slots import HostSlots

Copy = tuple[int, int]


@dataclass
class SwapPlan(KVConnectorMetadata):  # type: ignore[misc]
    """The copies of one step as (block, slot) pairs. loading: the requests that wait for the step's
    copies in; empty without asynchronous loads."""

    out: list[Copy] = field(default_factory=list)
    back: list[Copy] = field(default_factory=list)
    loading: list[str] = field(default_factory=list)


class SwapConnector(KVConnectorBase):
    """The KV connector of both roles.

    Extra settings: swap_gib, the host memory of all workers together. tenant_share, the fraction
    that one tenant (cache salt) may use. load_async: copies in run beside the step, and only the
    requests that need them wait. ValueError for models and kinds of parallelism with blocks of
    different sizes.
    """

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        size = int(float(extra.get("swap_gib", 0)) * 2**30)
        # Scheduler and workers must compute the same count, so both use shared configuration only.
        self._block_bytes = bytes_per_block(kv_cache_config) * swap_workers(vllm_config)
        self._block_size = tokens_per_block(kv_cache_config, vllm_config)
        self._count = size // self._block_bytes
        self._slots = HostSlots(self._count, float(extra.get("tenant_share", 1.0)))
        self._load_async = bool(extra.get("load_async", False))
        self._plan = SwapPlan()
        self._matches: dict[str, tuple[int, list[int]]] = {}
        self._layers: KVLayers | None = None
        self._host: torch.Tensor | None = None
        # In the worker: requests with copies in flight, and the events that mark their ends.
        self._loading: list[tuple[torch.cuda.Event | None, list[str]]] = []
        # Blocks copied out and in since the engine started.
        self._swapped_out = self._swapped_in = 0
        # Blocks that the current step brings back, by request.
        self.loaded: dict[str, int] = {}

    @classmethod
    def among(cls, connector: Any, swap_gib: float) -> SwapConnector | None:
        """Return the scheduler's SwapConnector, alone or inside a MultiConnector. ValueError if
        swap_gib asks for one but the engine has only other connectors."""
        for each in connectors_of(connector):
            if isinstance(each, cls):
                return each
        if swap_gib:
            raise ValueError(
                "swap_gib is set, but the engine has a different KV connector: remove "
                "--kv-transfer-config, add SwapConnector to a MultiConnector, or set "
                "swap_gib to 0"
            )
        return None

    @property
    def requires_kv_delivery(self) -> bool:
        """False: the buffer is a cache, and lost blocks are computed again."""
        return False

    # -- scheduler: called by Weft -----------------------------------------------------------

    def save(self, request: Request, blocks: Sequence[Any]) -> int:
        """A running request is preempted: plan the copies of its full blocks. Returns how many."""
        full = int(request.num_computed_tokens) // self._block_size
        kept = []
        for block in blocks[:full]:
            if block.block_hash is None:
                break
            kept.append(block)
        copies = self._slots.put(
            request.request_id, request.cache_salt or "", [block.block_hash for block in kept]
        )
        self._plan.out.extend((kept[index].block_id, slot) for index, slot in copies)
        self._swapped_out += len(copies)
        return len(copies)

    def state(self) -> dict[str, int]:
        """Return the counts for `GET /weft/state`."""
        return {
            "slots": self._count,
            "used": len(self._slots),
            "swapped_out": self._swapped_out,
            "swapped_in": self._swapped_in,
            "bytes_out": self._swapped_out * self._block_bytes,
            "bytes_in": self._swapped_in * self._block_bytes,
            "dropped": self._slots.dropped,
        }

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        return self._slots.violations()

    def forget(self, request_id: str) -> None:
        """A request has finished or was aborted."""
        self._slots.release(request_id)
        self._matches.pop(request_id, None)
        self.loaded.pop(request_id, None)

    # -- scheduler: called by vLLM -----------------------------------------------------------

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int, bool]:
        """Return the tokens of the context that are in the buffer beyond those in the prefix
        cache."""
        first = num_computed_tokens // self._block_size
        # The last token is always computed, because its logits are needed.
        last = (int(request.num_tokens) - 1) // self._block_size
        slots = self._slots.match(hash_ for hash_ in self._keys(request, first, last))
        self._matches[request.request_id] = (first, slots)
        return len(slots) * self._block_size, self._load_async and bool(slots)

    def update_state_after_alloc(
        self, request: Request, blocks: Any, num_external_tokens: int
    ) -> None:
        """Plan the copies into the allocated blocks."""
        first, slots = self._matches.pop(request.request_id, (0, []))
        count = num_external_tokens // self._block_size
        if not count:
            return
        numbers = blocks.get_block_ids()[0][first : first + count]
        self._plan.back.extend(zip(numbers, slots[:count], strict=True))
        if self._load_async:
            self._plan.loading.append(request.request_id)
        self._swapped_in += count
        self.loaded[request.request_id] = count

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> SwapPlan:
        """Pass the step's plan to the worker."""
        plan, self._plan = self._plan, SwapPlan()
        return plan

    def reset_cache(self) -> bool:
        """The cache is emptied: empty the buffer too."""
        self._slots.clear()
        self._plan.out.clear()
        self._matches.clear()
        return True

    def _keys(self, request: Request, first: int, last: int) -> Iterable[Any]:
        return (block_key(hash_) for hash_ in request.block_hashes[first:last])

    # -- worker ------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Store the layers' tensors and allocate the host buffer. ValueError if a tensor does not
        hold the blocks that the scheduler counts."""
        # Layers with shared KV have the same tensor.
        tensors = {(t.data_ptr(), t.shape, t.stride()): t for t in kv_caches.values()}
        blocks = int(self.kv_config.num_blocks)
        self._layers = prepare([by_blocks(tensor, blocks) for tensor in tensors.values()])
        held = bytes_per_block(self.kv_config)
        if self._layers.block_bytes > held:
            raise ValueError(
                f"KV swap: a block of the layers has {self._layers.block_bytes} bytes, the "
                f"scheduler counts {held}"
            )
        size = self._count * self._layers.block_bytes
        self._host = host_buffer(size, pinned=self._layers.device.type == "cuda")
        warm_up(self._layers)

    def handle_preemptions(self, kv_connector_metadata: SwapPlan) -> None:
        """Copy out before the step writes to any block."""
        for blocks, where in self._runs(kv_connector_metadata.out):
            # The step waits for the gather on the device, not for the transfer to the host.
            swap_out(self._layers_, blocks, where, wait=False)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Copy in, before the step's forward pass or beside it."""
        plan: SwapPlan = self.step_metadata
        made = None
        for blocks, where in self._runs(plan.back):
            made = swap_in(where, self._layers_, blocks, wait=not self._load_async)
        if plan.loading:
            # Copies finish in order, so the last event covers all.
            self._loading.append((made, plan.loading))

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, set[str] | None]:
        """Return the requests whose blocks have arrived since the last call."""
        finished: set[str] = set()
        while self._loading:
            made, requests = self._loading[0]
            if made is not None and not made.query():
                break
            finished.update(requests)
            del self._loading[0]
        return None, finished or None

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing: the stream of the forward pass waits for the copies."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **_: Any) -> None:
        """Do nothing: only blocks of preempted requests are saved."""

    def wait_for_save(self) -> None:
        """Do nothing: no save is in flight."""

    @property
    def _layers_(self) -> KVLayers:
        assert self._layers is not None, "the KV caches were not registered"
        return self._layers

    def _runs(self, copies: Sequence[Copy]) -> Iterable[tuple[list[int], torch.Tensor]]:
        """Group copies with consecutive slots, each group with its part of the buffer: one transfer
        each."""
        host, size = self._host, self._layers_.block_bytes
        assert host is not None
        start = 0
        while start < len(copies):
            end = start + 1
            while end < len(copies) and copies[end][1] == copies[end - 1][1] + 1:
                end += 1
            slot = copies[start][1]
            part = host[slot * size : (slot + end - start) * size]
            yield [block for block, _ in copies[start:end]], part
            start = end
