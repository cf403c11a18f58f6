"""Adapter to vLLM's private names for KV blocks and KV connectors, for the tested release.

The rest of the plugin uses blocks and connectors only through this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft_engine.version_check import check_version, installed_version

check_version(installed_version())

from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: E402
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (  # noqa: E402
    MultiConnector,
)
from vllm.v1.core.kv_cache_utils import (  # noqa: E402
    FreeKVCacheBlockQueue,
    make_block_hash_with_group_id,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.output import SchedulerOutput  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec,
    MLAAttentionSpec,
    group_kernel_blocks,
)
from vllm.v1.request import Request  # noqa: E402

__all__ = [
    "PREFIX_SPECS",
    "FreeBlocks",
    "KVConnectorBase",
    "KVConnectorMetadata",
    "KVConnectorRole",
    "Request",
    "SchedulerOutput",
    "block_key",
    "by_blocks",
    "bytes_per_block",
    "comes_from_elsewhere",
    "connectors_of",
    "contents_of",
    "swap_workers",
    "tokens_per_block",
]


class KVConnectorBase(KVConnectorBase_V1):  # type: ignore[misc]
    """vLLM's base class of KV connectors, with public names for the attributes that Weft uses."""

    @property
    def kv_config(self) -> Any:
        """The groups of layers and the number of blocks."""
        return self._kv_cache_config

    @property
    def step_metadata(self) -> Any:
        """In the worker: the current step's result of `build_connector_meta`."""
        return self._get_connector_metadata()


# Full attention: each token attends to all tokens before it.
PREFIX_SPECS: Final = (FullAttentionSpec, MLAAttentionSpec)


def comes_from_elsewhere(request: Request) -> bool:
    """Whether the request's KV is fetched from another engine that has computed its prompt."""
    params = request.kv_transfer_params
    return bool(params) and bool(params.get("do_remote_prefill"))


def connectors_of(connector: Any) -> list[Any]:
    """Return a scheduler's KV connector and the connectors inside a MultiConnector; [] without
    one."""
    if connector is None:
        return []
    inside = connector.sub_connectors if isinstance(connector, MultiConnector) else ()
    return [connector, *inside]


def bytes_per_block(kv_cache_config: Any) -> int:
    """Return the bytes of one KV block over all layers of one worker. Raises ValueError if the
    model has several groups of layers or layers of different sizes, since the scheduler counts one
    size."""
    groups = kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        raise ValueError(f"KV swap needs one group of layers; this model has {len(groups)}")
    spec = groups[0].kv_cache_spec
    sizes = {each.page_size_bytes for each in getattr(spec, "kv_cache_specs", {"": spec}).values()}
    if len(sizes) != 1:
        raise ValueError(f"KV swap needs layers of one size; this model has {sorted(sizes)} bytes")
    return int(sizes.pop()) * len(groups[0].layer_names)


def by_blocks(cache: Any, blocks: int) -> Any:
    """View a layer's tensor with the scheduler's blocks on its first axis. Attention kernels may
    split each block into smaller ones, and vLLM registers the tensor with those. Raises ValueError
    if their number is not a multiple of `blocks`."""
    if not blocks or cache.shape[0] % blocks:
        raise ValueError(f"KV swap: a layer has {cache.shape[0]} blocks, the scheduler {blocks}")
    return group_kernel_blocks(cache, blocks)


def tokens_per_block(kv_cache_config: Any, vllm_config: Any) -> int:
    """Return the tokens per scheduler block, over all ranks that share a context."""
    return int(resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)[0])


def swap_workers(vllm_config: Any) -> int:
    """Return the number of workers that each hold a part of every block. Raises ValueError for
    pipeline parallelism: workers with different layers would have buffers of different sizes."""
    parallel = vllm_config.parallel_config
    if parallel.pipeline_parallel_size != 1:
        raise ValueError("KV swap does not work with pipeline parallelism; set swap_gib to 0")
    return int(parallel.tensor_parallel_size)


def block_key(block_hash: Any) -> Any:
    """Return the key of a block with this hash in the first group."""
    return make_block_hash_with_group_id(block_hash, 0)


def contents_of(blocks: Sequence[Any]) -> list[Any]:
    """Return the key of each block's content; None for blocks that are not full."""
    # vLLM's property for this takes three times as long, and this runs for each block of a context.
    return [block._block_hash for block in blocks]


class FreeBlocks(FreeKVCacheBlockQueue):  # type: ignore[misc]
    """vLLM's queue of free blocks, with removal of several blocks at once."""

    def first(self) -> Any:
        """Return the next block to be reused; None if the queue is empty."""
        return self.fake_free_list_head.next_free_block if self.num_free_blocks else None

    def remove_n(self, blocks: Sequence[Any]) -> None:
        """Remove blocks of the queue. They were freed last to first, so most neighbours in the
        context are neighbours in the queue."""
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
