"""Builds vLLM's scheduler with Weft's plugin for a model that exists only as a shape."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch
from vllm.config import KVTransferConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.structured_output import StructuredOutputManager
from weft_engine.emulated.presets import EngineShape

from weft_bench.virtual.blocks import work_in_bulk
from weft_bench.virtual.leap import SimScheduler

# Exists only as a configuration; vLLM needs one to build its scheduler.
TINY_MODEL: Final[dict[str, Any]] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "torch_dtype": "float32",
}
# vLLM counts a block's bytes as keys and values, two heads, two bytes a number.
_BYTES_A_NUMBER: Final = 2 * 2 * 2


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of a simulated engine.

    policy: the order. options: those of the order. tags: evict by block tags. swap_gib: host memory
    for preempted calls. host_blocks: host memory for the KV blocks of prompts, through vLLM's
    OffloadingConnector. prefix_cache: vLLM's own. plugin: further PluginSettings. naive: run one
    real scheduler step for each token; slow, with the same decisions. asynchronous: schedule each
    step while the previous one runs; as slow as naive.
    """

    policy: str = "resident"
    options: Mapping[str, Any] = field(default_factory=dict)
    tags: bool = True
    swap_gib: float = 0.0
    host_blocks: int = 0
    prefix_cache: bool = True
    plugin: Mapping[str, Any] = field(default_factory=dict)
    naive: bool = False
    asynchronous: bool = False


def build_scheduler(shape: EngineShape, settings: EngineSettings) -> SimScheduler:
    """Return a scheduler with an empty cache. Raises ValueError for invalid settings."""
    weft = {
        "policy": settings.policy,
        "options": dict(settings.options),
        "tags": settings.tags,
        "swap_gib": settings.swap_gib,
        **settings.plugin,
    }
    config = _config(
        shape,
        settings.prefix_cache,
        settings.asynchronous,
        json.dumps(weft, sort_keys=True),
        settings.host_blocks,
    )
    scheduler: SimScheduler = scheduler_of(SimScheduler, config, shape)
    scheduler.naive = settings.naive or settings.asynchronous
    if not settings.naive:
        work_in_bulk(scheduler.kv_cache_manager)
    return scheduler


@lru_cache(maxsize=64)
def _config(
    shape: EngineShape, prefix_cache: bool, asynchronous: bool, weft_json: str, host_blocks: int
) -> Any:
    """Return vLLM's configuration.

    Building it takes far longer than building a scheduler, and a scheduler changes it only during a
    step. Equal replicas therefore share one.
    """
    weft = json.loads(weft_json)
    swap = None
    if weft["swap_gib"]:
        swap = KVTransferConfig(
            kv_connector="SwapConnector",
            kv_role="kv_both",
            kv_connector_module_path="weft_engine.swap.connector",
            kv_connector_extra_config={
                "swap_gib": weft["swap_gib"],
                "tenant_share": weft.get("swap_share", 1.0),
            },
        )
    elif host_blocks:
        swap = KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config={
                "cpu_bytes_to_use": host_blocks * shape.block_bytes,
                # Decoding sequences leave vLLM's loop (see leap.py), so their blocks are stored
                # with the next prompt.
                "offload_prompt_only": True,
            },
        )
    return vllm_config(
        shape,
        asynchronous,
        enable_prefix_caching=prefix_cache,
        kv_transfer_config=swap,
        additional_config={"weft": weft},
    )


def vllm_config(shape: EngineShape, asynchronous: bool, **options: Any) -> Any:
    """Return vLLM's configuration for a model that is only a shape. options: further engine
    arguments.
    """
    # vLLM logs at length how it starts a model.
    logging.getLogger("vllm").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        model = {**TINY_MODEL, "max_position_embeddings": shape.context}
        (Path(folder) / "config.json").write_text(json.dumps(model))
        config = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            load_format="dummy",
            dtype="float32",
            block_size=shape.block_tokens,
            max_model_len=shape.context,
            max_num_seqs=shape.slots,
            max_num_batched_tokens=shape.step_tokens,
            **options,
        ).create_engine_config()
    config.cache_config.num_gpu_blocks = shape.kv_blocks
    # The CPU platform always turns it off.
    config.scheduler_config.async_scheduling = asynchronous
    return config


def scheduler_of(kind: Any, config: Any, shape: EngineShape) -> Any:
    """Return a scheduler of this class with an empty cache."""
    init_none_hash(sha256)
    return kind(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=shape.kv_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer.0"], _spec(shape))],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=shape.block_tokens,
        hash_block_size=shape.block_tokens,
        log_stats=False,
    )


def _spec(shape: EngineShape) -> Any:
    # One layer whose heads are so large that a block has the bytes of all layers. The swap buffer
    # counts its slots in these bytes.
    size = shape.block_bytes // (shape.block_tokens * _BYTES_A_NUMBER)
    return FullAttentionSpec(
        block_size=shape.block_tokens, num_kv_heads=2, head_size=size, dtype=torch.bfloat16
    )
