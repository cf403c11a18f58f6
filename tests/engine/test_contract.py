"""The names of vLLM that the adapter uses, compared with the installed release.

A release that renames one fails here with the name instead of in a step. The list contains exactly
the names in the adapter.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

PARTS = ("compat", "compat_admission", "compat_cpu", "compat_kv", "compat_prefill")
ADAPTER = [Path("engine_patches/weft_engine") / f"{name}.py" for name in PARTS]
ROOT = Path(__file__).parents[2]

# Attributes of a scheduler.
SCHEDULER = {
    "running", "waiting", "requests", "policy", "connector", "vllm_config", "block_size",
    "hash_block_size", "kv_cache_config", "kv_cache_manager", "max_num_active_reqs",
    "num_waiting_for_streaming_input", "prev_step_scheduled_req_ids", "requires_kv_delivery",
    "defer_block_free", "kv_holding_waiting", "lora_config", "max_model_len", "_pause_state",
    "num_spec_tokens", "num_lookahead_tokens", "max_num_scheduled_tokens", "max_num_running_reqs",
    "_inflight_prefills",
    "num_prefill_lookahead", "reset_preempted_req_ids",
}  # fmt: skip
REQUEST = {
    "request_id", "num_tokens", "num_computed_tokens", "num_prompt_tokens", "num_output_tokens",
    "block_hashes", "cache_salt", "kv_transfer_params", "status", "resumable", "sampling_params",
    "prefill_stats", "num_stale_output_tokens", "drop_stale_output", "lora_request",
    "structured_output_request", "has_encoder_inputs",
}  # fmt: skip
BLOCK = {
    "block_id", "block_hash", "_block_hash", "ref_cnt", "is_null", "next_free_block",
    "prev_free_block",
}  # fmt: skip
# Attributes of objects that are reachable only through a path.
PATHS = {
    "kv_cache_manager.block_pool.blocks",
    "kv_cache_manager.block_pool.free_block_queue.num_free_blocks",
    "kv_cache_manager.coordinator.single_type_managers",
    "kv_cache_manager.enable_caching",
    "kv_cache_manager.empty_kv_cache_blocks.blocks",
    "kv_cache_manager.watermark_blocks",
    "kv_cache_config.kv_cache_groups",
    "kv_cache_config.num_blocks",
    "vllm_config.parallel_config._api_process_count",
    "vllm_config.parallel_config.data_parallel_size",
    "vllm_config.parallel_config.data_parallel_size_local",
    "vllm_config.parallel_config.local_engines_only",
    "vllm_config.parallel_config.pipeline_parallel_size",
    "vllm_config.parallel_config.tensor_parallel_size",
    "vllm_config.additional_config",
    "vllm_config.scheduler_config.enable_chunked_prefill",
}
# Records that only a running engine makes; other tests of this folder cover them.
RECORDS = {
    "scheduled_new_reqs", "scheduled_cached_reqs", "resumed_req_ids", "req_id", "blocks",
    "extra_args", "num_cached_tokens", "num_external_cached_tokens", "kv_cache_spec", "layer_names",
    "page_size_bytes", "sub_connectors", "_kv_cache_config", "RUNNING", "fake_free_list_head",
    "shape", "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR", "WAITING",
    "PREEMPTED", "UNPAUSED", "grammar", "max_loras", "lora_int_id", "num_scheduled_tokens",
    "model_runner", "input_batch", "generators", "discard_request_mask", "num_reqs",
    "block_ids", "new_block_ids", "req_ids",
}  # fmt: skip


def methods() -> list[tuple[Callable[..., Any], list[str]]]:
    """Yield the methods that are called or overridden, with their required parameters."""
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import (
        FreeKVCacheBlockQueue,
        make_block_hash_with_group_id,
        resolve_kv_cache_block_sizes,
    )
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.request_queue import FCFSRequestQueue
    from vllm.v1.kv_cache_interface import group_kernel_blocks
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner
    from vllm.v1.worker.cpu_worker import CPUWorker

    return [
        (AsyncScheduler.schedule, []),
        (AsyncScheduler.add_request, ["request"]),
        (AsyncScheduler.update_from_output, ["scheduler_output", "model_runner_output"]),
        (AsyncScheduler.finish_requests, ["request_ids", "finished_status"]),
        (AsyncScheduler.shutdown, []),
        (AsyncScheduler.get_kv_cache_usage, []),
        (AsyncScheduler.reset_prefix_cache, ["reset_running_requests"]),
        (AsyncScheduler.reset_connector_cache, []),
        (AsyncScheduler._preempt_request, ["request", "timestamp", "drop_stale_output"]),
        (AsyncScheduler._free_request_blocks, ["request"]),
        (AsyncScheduler._enqueue_waiting_request, ["request"]),
        (
            AsyncScheduler._reserve_prefill_lookahead,
            ["request", "num_computed_tokens", "num_new_tokens"],
        ),
        (AsyncScheduler._mamba_block_aligned_split, ["request", "num_new_tokens"]),
        (AsyncScheduler._handle_blocked_waiting_request, ["request"]),
        (FCFSRequestQueue.peek_request, []),
        (KVCacheManager.get_blocks, ["request_id"]),
        (KVCacheManager.get_computed_blocks, ["request"]),
        (KVCacheManager.prefix_cache_lookup_enabled, ["request"]),
        (
            KVCacheCoordinator.get_num_blocks_to_allocate,
            ["request_id", "num_tokens", "new_computed_blocks", "total_computed_tokens"],
        ),
        (BlockPool.get_cached_block, ["block_hash", "kv_cache_group_ids"]),
        (BlockPool.get_num_free_blocks, []),
        (FreeKVCacheBlockQueue.get_all_free_blocks, []),
        (FreeKVCacheBlockQueue.iter_blocks_after, ["cursor"]),
        (FreeKVCacheBlockQueue.popleft, []),
        (FreeKVCacheBlockQueue.popleft_n, ["n"]),
        (FreeKVCacheBlockQueue.append_n, ["blocks"]),
        (FreeKVCacheBlockQueue.prepend_n, ["blocks"]),
        (KVConnectorBase_V1.__init__, ["vllm_config", "role", "kv_cache_config"]),
        (KVConnectorBase_V1._get_connector_metadata, []),
        (KVConnectorBase_V1.get_num_new_matched_tokens, ["request", "num_computed_tokens"]),
        (
            KVConnectorBase_V1.update_state_after_alloc,
            ["request", "blocks", "num_external_tokens"],
        ),
        (KVConnectorBase_V1.build_connector_meta, ["scheduler_output"]),
        (KVConnectorBase_V1.register_kv_caches, ["kv_caches"]),
        (KVConnectorBase_V1.handle_preemptions, ["kv_connector_metadata"]),
        (KVConnectorBase_V1.start_load_kv, ["forward_context"]),
        (KVConnectorBase_V1.get_finished, ["finished_req_ids"]),
        (KVConnectorBase_V1.reset_cache, []),
        (make_block_hash_with_group_id, ["block_hash", "group_id"]),
        (resolve_kv_cache_block_sizes, ["kv_cache_config", "vllm_config"]),
        (group_kernel_blocks, ["cache", "num_blocks"]),
        (CPUWorker.init_device, []),
        (CPUModelRunner._sample, ["logits", "spec_decode_metadata"]),
        (CPUModelRunner._bookkeeping_sync, ["scheduler_output", "sampler_output"]),
    ]


def server_parts() -> list[tuple[Callable[..., Any], list[str]]]:
    """Yield what `weft_engine.server` calls, with the parameters that it passes."""
    from weft_engine import compat_serve as vllm

    return [
        (vllm.cli_env_setup, []),
        (vllm.make_arg_parser, ["parser"]),
        (vllm.validate_parsed_serve_args, ["args"]),
        (vllm.setup_server, ["args", "reuse_port"]),
        (vllm.build_and_serve, ["engine_client", "listen_address", "sock", "args"]),
        (vllm.AsyncEngineArgs.from_cli_args, ["args"]),
        (vllm.AsyncEngineArgs.create_engine_config, ["usage_context"]),
        (
            vllm.AsyncLLM.from_vllm_config,
            ["vllm_config", "usage_context", "enable_log_requests", "disable_log_stats"],
        ),
        (vllm.AsyncLLM.shutdown, ["timeout"]),
    ]


def test_vllm_has_the_methods_with_their_parameters():
    for method, wanted in methods() + server_parts():
        given = [name for name in inspect.signature(method).parameters if name != "self"]
        assert [name for name in given if name in wanted] == wanted, method.__qualname__


def test_vllm_s_objects_have_the_attributes(engine):
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.engine.async_llm import AsyncLLM

    e = engine()
    e.add("c")
    scheduler = e.scheduler
    assert not [name for name in SCHEDULER if not hasattr(scheduler, name)]
    assert not [name for name in REQUEST if not hasattr(scheduler.requests["c"], name)]
    assert not [name for name in BLOCK if not hasattr(KVCacheBlock(0), name)]
    assert hasattr(AsyncLLM, "errored")
    for path in PATHS:
        found: Any = scheduler
        for name in path.split("."):
            assert hasattr(found, name), path
            found = getattr(found, name)


def test_the_list_is_that_of_the_adapter():
    """The list contains the attributes that are neither Weft's nor Python's, and no others."""
    used: set[str] = set()
    ours: set[str] = {"prepend_request", "remove_n"}
    for file in ADAPTER:
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            if isinstance(node, ast.Attribute):
                used.add(node.attr)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                ours.add(node.name)
    python = {name for kind in vars(builtins).values() for name in dir(kind)}
    ours |= {
        "_decode_tokens",
        "_hashes",
        "prompt_budget",
        "spent",
        "left",
        "take",
        "passes_over",
        "refused",
        "_loras",
        "_max_loras",
        "_most_active",
        "_one_plain_group",
        "_requests",
    }
    python |= {"move_to_end", "warning", "getLogger", "util", "find_spec", "origin", "__getitem__"}
    python |= {"np", "nonzero", "get_state", "set_state", "__class__"}
    parts = {name for path in PATHS for name in path.split(".")}
    known = {method.__name__ for method, _ in methods()}
    listed = SCHEDULER | REQUEST | BLOCK | RECORDS | parts | known
    assert used - ours - python - listed == set()
    assert used >= RECORDS
