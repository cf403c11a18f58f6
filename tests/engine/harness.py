"""vLLM's real scheduler and KV-cache manager, in this process, in virtual time.

The model is replaced by a rule (every scheduled sequence yields token 7 when its prefill is done,
or what its grammar asks for); everything that decides is vLLM's own code with our subclass on top.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from grammar import Counting, CountingBackend, sampled
from vllm import SamplingParams
from vllm.config import KVTransferConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import StructuredOutputsParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager
from weft_bench.virtual.engine import TINY_MODEL
from weft_engine.scheduler import WeftScheduler
from weft_engine.wire import CallContext, CallReport

BLOCK = 16
CONFIG = {**TINY_MODEL, "max_position_embeddings": 4096}


@dataclass
class Engine:
    """A scheduler with a virtual clock. A step takes `step_s`, and `token_s` for each token."""

    scheduler: WeftScheduler
    step_s: float = 1.0
    token_s: float = 0.0
    depth: int = 1
    now: float = 0.0
    reports: list[CallReport] = field(default_factory=list)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    batches: list[frozenset[str]] = field(default_factory=list)
    _flying: deque[tuple[Any, dict[str, int]]] = field(default_factory=deque)
    # Requests whose KV is being loaded, and the steps that this still takes.
    _loading: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        name: str,
        *,
        program: str = "",
        service: float = 0.0,
        waiting: float = 0.0,
        critical_path: float = 0.0,
        arrival: float = 0.0,
        extra: dict[str, Any] | None = None,
        prompt: list[int] | None = None,
        tokens: int = 1,
        call: str = "",
        salt: str | None = None,
        grammar: bool = False,
        tenant: str = "",
        weight: float = 1.0,
    ) -> None:
        """A request arrives now. extra: further `vllm_xargs`. salt: its tenant's. grammar: its
        answer has to count."""
        context = CallContext(
            call or name, program or name, service, waiting, arrival, critical_path,
            tenant=tenant, weight=weight,
        )  # fmt: skip
        request = Request(
            request_id=name,
            prompt_token_ids=prompt or [1, 2, 3],
            sampling_params=SamplingParams(
                max_tokens=tokens,
                ignore_eos=True,
                extra_args={**context.to_xargs(), **(extra or {})},
                structured_outputs=StructuredOutputsParams(regex=".*") if grammar else None,
            ),
            pooling_params=None,
            arrival_time=self.now,
            cache_salt=salt,
            block_hasher=get_request_block_hasher(BLOCK, sha256),
        )
        if grammar:
            request.structured_output_request.grammar = Counting()
        self.scheduler.add_request(request)

    def abort(self, name: str) -> None:
        """The client goes away."""
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def step(self) -> None:
        """Schedule one step, and finish the oldest step in flight once the pipeline is full. A step
        that samples after a grammar waits for the tokens before, as vLLM's core does."""
        output = self.scheduler.schedule()
        scheduled = list(output.num_scheduled_tokens)
        self.batches.append(frozenset(scheduled))
        yields = {r: 7 for r in scheduled if not self.scheduler.requests[r].is_prefill_chunk}
        if output.pending_structured_output_tokens:
            self.land_all()
        yields |= sampled(self.scheduler.get_grammar_bitmask(output))
        self._flying.append((output, yields))
        if len(self._flying) >= self.depth:
            self._land()

    def land_all(self) -> None:
        """Finish the steps in flight."""
        while self._flying:
            self._land()

    def run(self, limit: int = 5000) -> None:
        """Step until nothing is left; then nothing may be left behind."""
        for _ in range(limit):
            if not self.busy:
                self.check_idle()
                return
            if self.scheduler.has_unfinished_requests():
                self.step()
            else:
                self._land()
        raise AssertionError("the engine did not come to an end")

    @property
    def busy(self) -> bool:
        """Whether a request or a step in flight is left."""
        return self.scheduler.has_unfinished_requests() or bool(self._flying)

    def check_idle(self) -> None:
        """The integrity check of an engine with nothing to do: all blocks free, no books open."""
        pool = self.scheduler.kv_cache_manager.block_pool
        # One block is the null block.
        assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
        assert self.scheduler.violations() == []

    def _land(self) -> None:
        output, yields = self._flying.popleft()
        self.now += self.step_s + self.token_s * output.total_num_scheduled_tokens
        names = list(output.num_scheduled_tokens)
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={r: i for i, r in enumerate(names)},
            sampled_token_ids=[[yields[r]] if r in yields else [] for r in names],
            kv_connector_output=self._loaded(output.kv_connector_metadata),
        )
        for outputs in self.scheduler.update_from_output(output, result).values():
            for item in outputs.outputs:
                self.tokens.setdefault(item.request_id, []).extend(item.new_token_ids)

    def _loaded(self, plan: Any) -> KVConnectorOutput | None:
        """Asynchronous loads take one to three steps; what a step has finished."""
        for name in getattr(plan, "loading", ()):
            self._loading[name] = 1 + len(self._loading) % 3
        done = {name for name, left in self._loading.items() if left == 1}
        self._loading = {name: left - 1 for name, left in self._loading.items() if left > 1}
        return KVConnectorOutput(finished_recving=done) if done else None


def swap_transfer(slots: int, load_async: bool = False) -> KVTransferConfig:
    """The connector's half in the scheduler, with a buffer of `blocks` blocks of the one layer."""
    layer_bytes = BLOCK * 2 * 2 * 16 * 4
    return KVTransferConfig(
        kv_connector="SwapConnector",
        kv_role="kv_both",
        kv_connector_module_path="weft_engine.swap.connector",
        kv_connector_extra_config={
            "swap_gib": slots * layer_bytes / 2**30,
            "tenant_share": 0.75,
            "load_async": load_async,
        },
    )


def make_engine(
    folder: Path,
    *,
    policy: str = "plas",
    options: dict[str, Any] | None = None,
    max_num_seqs: int = 2,
    blocks: int = 512,
    async_scheduling: bool = False,
    max_displacements: int = 3,
    step_tokens: int = 2048,
    swap_slots: int = 0,
    swap_async: bool = False,
    windows: int = 0,
    transfer: KVTransferConfig | None = None,
    change: Callable[[Any], None] = lambda config: None,
    **settings: Any,
) -> Engine:
    """A scheduler as vLLM would build it, for a model that exists only as a config file. windows:
    groups of layers with a sliding window as long as the context, beside the one with full
    attention. transfer: its KV connector. change: of the configuration, before the scheduler is
    built."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    config = EngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="float32",
        block_size=BLOCK,
        max_model_len=2048,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=step_tokens,
        kv_transfer_config=(swap_transfer(swap_slots, swap_async) if swap_slots else transfer),
        additional_config={
            "weft": {
                "policy": policy,
                "options": options or {},
                "max_displacements": max_displacements,
                **settings,
            }
        },
    ).create_engine_config()
    config.cache_config.num_gpu_blocks = blocks
    config.scheduler_config.async_scheduling = async_scheduling
    change(config)
    init_none_hash(sha256)
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=16, dtype=torch.float32)
    window = SlidingWindowSpec(
        block_size=BLOCK, num_kv_heads=2, head_size=16, dtype=torch.float32, sliding_window=2048
    )
    grammars = StructuredOutputManager(config)
    grammars.backend = CountingBackend(config, None, CONFIG["vocab_size"])
    scheduler = WeftScheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[
                KVCacheGroupSpec(["layer.0"], spec),
                *(KVCacheGroupSpec([f"window.{i}"], window) for i in range(windows)),
            ],
        ),
        structured_output_manager=grammars,
        block_size=BLOCK,
        hash_block_size=BLOCK,
        log_stats=False,
    )
    engine = Engine(scheduler, depth=2 if async_scheduling else 1)
    scheduler.clock = lambda: engine.now  # type: ignore[method-assign]
    scheduler._send = engine.reports.append  # type: ignore[method-assign]
    return engine
