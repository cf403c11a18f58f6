"""vLLM's private names that KV blocks and KV connectors need, for the release it was tested with.

The rest of the plugin sees blocks and connectors through the functions of this module.
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
    """vLLM's base of KV connectors, with what ours needs of it under public names."""

    @property
    def kv_config(self) -> Any:
        """The groups of layers and the number of blocks."""
        return self._kv_cache_config

    @property
    def step_metadata(self) -> Any:
        """What `build_connector_meta` made for the step at hand; in the worker."""
        return self._get_connector_metadata()


# Layers whose every token reads all tokens before it.
PREFIX_SPECS: Final = (FullAttentionSpec, MLAAttentionSpec)


def comes_from_elsewhere(request: Request) -> bool:
    """Whether another engine has computed the request's prompt and its KV is to be fetched."""
    params = request.kv_transfer_params
    return bool(params) and bool(params.get("do_remote_prefill"))


def connectors_of(connector: Any) -> list[Any]:
    """A scheduler's KV connectors: the one, those inside a MultiConnector, or none."""
    if connector is None:
        return []
    inside = connector.sub_connectors if isinstance(connector, MultiConnector) else ()
    return [connector, *inside]


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


def by_blocks(cache: Any, blocks: int) -> Any:
    """A layer's tensor with the scheduler's blocks on its first axis. Attention kernels may divide
    each block into several smaller ones, and vLLM registers the tensor by theirs. ValueError if
    they are no multiple."""
    if not blocks or cache.shape[0] % blocks:
        raise ValueError(f"KV swap: a layer has {cache.shape[0]} blocks, the scheduler {blocks}")
    return group_kernel_blocks(cache, blocks)


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


class FreeBlocks(FreeKVCacheBlockQueue):  # type: ignore[misc]
    """vLLM's queue of free blocks, from which blocks of a context can be taken together."""

    def first(self) -> Any:
        """The block that would be taken next; None if there is none."""
        return self.fake_free_list_head.next_free_block if self.num_free_blocks else None

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
