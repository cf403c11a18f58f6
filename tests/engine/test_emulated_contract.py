"""The names of vLLM that the emulated engine uses, compared with the installed release."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest
from weft_engine.emulated import compat
from weft_engine.emulated.worker import EmulatedWorker

pytestmark = pytest.mark.engine

# Called by name from the engine core, or defined by vLLM's GPU worker only.
CALLED_BY_NAME = {
    "determine_available_memory", "execute_dummy_batch", "get_kv_connector_handshake_metadata",
    "get_supported_tasks", "initialize_from_config", "reset_encoder_cache", "take_draft_token_ids",
    "update_max_model_len",
}  # fmt: skip


def records() -> list[tuple[Any, set[str]]]:
    """Return the records that the worker reads or makes, with their fields."""
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
        DirectionalTransferStats,
        OffloadingConnectorMetadata,
        OffloadingWorkerMetadata,
        TransferJob,
        TransferStats,
    )
    from vllm.v1.core.sched.output import (
        CachedRequestData,
        GrammarOutput,
        NewRequestData,
        SchedulerOutput,
    )
    from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
    from weft_engine.swap.connector import SwapPlan

    return [
        (
            SchedulerOutput,
            {"scheduled_new_reqs", "scheduled_cached_reqs", "num_scheduled_tokens",
             "total_num_scheduled_tokens", "finished_req_ids", "kv_connector_metadata"},
        ),
        (
            NewRequestData,
            {"req_id", "prompt_token_ids", "prefill_token_ids", "sampling_params",
             "num_computed_tokens"},
        ),
        (CachedRequestData, {"req_ids", "num_computed_tokens", "num_output_tokens"}),
        (GrammarOutput, {"structured_output_request_ids", "grammar_bitmask"}),
        (
            ModelRunnerOutput,
            {"req_ids", "req_id_to_index", "sampled_token_ids", "kv_connector_output"},
        ),
        (KVConnectorOutput, {"finished_recving", "kv_connector_worker_meta"}),
        (OffloadingConnectorMetadata, {"load_jobs", "store_jobs", "jobs_to_flush"}),
        (OffloadingWorkerMetadata, {"completed_jobs", "transfer_stats"}),
        (TransferStats, {"load", "store"}),
        (DirectionalTransferStats, {"bytes", "time"}),
        (TransferJob, {"req_id", "src_spec", "dst_spec"}),
        (SwapPlan, {"out", "back", "loading"}),
    ]  # fmt: skip


def test_records_have_the_fields():
    for record, names in records():
        assert names <= {field.name for field in fields(record)}, record.__name__


def test_the_worker_has_the_methods_that_vllm_calls():
    base = {name for name, _ in inspect.getmembers(compat.WorkerBase, inspect.isfunction)}
    ours = {name for name in vars(EmulatedWorker) if not name.startswith("_")}
    assert ours - base == CALLED_BY_NAME
    # The executor and the engine core call the others by these names.
    from vllm.v1.engine import core
    from vllm.v1.executor import abstract
    from vllm.v1.worker import gpu_worker

    text = inspect.getsource(core) + inspect.getsource(abstract)
    for name in CALLED_BY_NAME:
        assert f'"{name}"' in text or f".{name}(" in text, name
        assert hasattr(gpu_worker.Worker, name), name


def test_overridden_methods_have_vllm_s_parameters():
    for name, method in vars(EmulatedWorker).items():
        theirs = getattr(compat.WorkerBase, name, None)
        if name.startswith("_") or theirs is None:
            continue
        expected = list(inspect.signature(theirs).parameters)
        assert list(inspect.signature(method).parameters) == expected, name


@pytest.mark.parametrize("size", [2**21, 5 * 2**20, 1000 * 16 * 2])
def test_a_block_has_the_bytes_of_the_preset(size):
    (spec,) = compat.page(16, size).values()
    assert (spec.block_size, spec.page_size_bytes) == (16, size)


def test_layouts_and_parameters_of_a_call():
    from vllm import SamplingParams

    assert compat.layouts()
    params = SamplingParams(max_tokens=3, stop_token_ids=[7])
    assert params.all_stop_token_ids == {7}
    assert (params.eos_token_id, params.max_tokens) == (None, 3)
    assert all(hasattr(params, name) for name in compat.NUMBERS)
