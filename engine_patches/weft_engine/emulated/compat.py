"""Adapter to the names of vLLM that the emulated engine uses, for the tested release.

`tests/engine/test_emulated_contract.py` checks them. This module imports most of vLLM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.exceptions import VLLMValidationError
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import AsyncModelRunnerOutput, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

__all__ = [
    "CompilationTimes",
    "Ended",
    "Later",
    "WorkerBase",
    "arrived",
    "ended",
    "layouts",
    "page",
    "pieces_of",
    "refusing",
    "result",
    "synchronous",
]

LAYER = "emulated"
# Parameters of a call that ask for numbers of a model.
NUMBERS = ("logprobs", "prompt_logprobs", "logprob_token_ids")


def refusing(engine: Any) -> Any:
    """Return a subclass of vLLM's engine class that refuses calls for numbers of a model."""

    class Refusing(engine):  # type: ignore[misc]
        async def add_request(
            self, request_id: Any, prompt: Any, params: Any, *more: Any, **named: Any
        ) -> Any:
            for name in NUMBERS:
                if getattr(params, name, None) is not None:
                    raise VLLMValidationError(
                        "an emulated engine has no model and returns no logprobs", parameter=name
                    )
            return await super().add_request(request_id, prompt, params, *more, **named)

    return Refusing


class Later(AsyncModelRunnerOutput):  # type: ignore[misc]
    """The output of a step that still runs. take: waits for it and returns it."""

    def __init__(self, take: Callable[[], Any]) -> None:
        self._take = take

    def get_output(self) -> Any:
        """Wait for the step."""
        return self._take()


def result(tokens: Mapping[str, list[int]], transfers: Any) -> Any:
    """Return the output of a step. tokens: the new ones of each sequence, in vLLM's order."""
    names = list(tokens)
    return ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=list(tokens.values()),
        kv_connector_output=transfers,
    )


def arrived(requests: set[str]) -> Any:
    """Return a report on requests whose KV blocks have arrived."""
    return KVConnectorOutput(finished_recving=requests)


class Ended(NamedTuple):
    """A job of the OffloadingConnector that has ended. request: the one that waits for a load; ""
    for a store. size: bytes."""

    number: int
    request: str
    size: int
    seconds: float


def ended(jobs: Iterable[Ended]) -> Any:
    """Return a report on ended jobs of the OffloadingConnector."""
    meta = OffloadingWorkerMetadata()
    waiting = set()
    for job in jobs:
        meta.mark_completed(job.number)
        stats = meta.transfer_stats
        (stats.load if job.request else stats.store).record(job.size, job.seconds)
        if job.request:
            waiting.add(job.request)
    return KVConnectorOutput(finished_recving=waiting or None, kv_connector_worker_meta=meta)


def page(block_size: int, size: int) -> dict[str, Any]:
    """Return the KV cache specification of a model with one layer. size: bytes of a block."""
    spec = FullAttentionSpec(
        block_size=block_size,
        num_kv_heads=1,
        head_size=max(1, size // (2 * block_size)),
        dtype=torch.uint8,
    )
    return {LAYER: spec}


def layouts() -> list[str]:
    """Return the names of the KV cache layouts that no attention backend restricts."""
    return [layout.name for layout in get_supported_kv_cache_layouts(())]


def pieces_of(model_config: Any) -> tuple[list[str], set[int]]:
    """Return the text of each token, and the tokens that are never written in free text."""
    size = model_config.get_vocab_size()
    if model_config.skip_tokenizer_init:
        return [""] * size, set()
    tokenizer = cached_tokenizer_from_config(model_config)
    known = min(size, len(tokenizer))
    pieces = [str(text) for text in tokenizer.convert_ids_to_tokens(list(range(known)))]
    special = {*tokenizer.all_special_ids, *range(known, size)}
    return pieces + [""] * (size - known), special


def synchronous(vllm_config: Any) -> bool:
    """Whether the engine runs one step at a time."""
    return int(vllm_config.max_concurrent_batches) == 1
