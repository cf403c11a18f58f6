"""Adapter to vLLM's chunked prefill; part of `compat`, for the same release.

Several methods of vLLM's scheduler determine the size of a prompt chunk. The limits apply inside
these methods, so the rest of vLLM works as with a smaller token budget.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request, RequestStatus

from weft_engine.prefill_limits import Step
from weft_engine.prompt_budget import PromptBudget
from weft_engine.step_cost import attention_pairs


class PrefillHooks(AsyncScheduler):  # type: ignore[misc]
    """vLLM's scheduler with a budget for the prompt tokens of the next step.

    prompt_budget: None for vLLM's own.
    """

    prompt_budget: PromptBudget | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Tokens per step of a request whose prompt is computed.
        self._decode_tokens = 1 + int(self.num_spec_tokens)

    def prefilling(self) -> dict[str, int]:
        """Return the prompt tokens that each running request still has to compute."""
        if not self._inflight_prefills:
            return {}
        return {
            request.request_id: int(request.num_tokens - request.num_computed_tokens)
            for request in self._inflight_prefills
            if request.status == RequestStatus.RUNNING
        }

    def next_step(self, prefilling: dict[str, int], slots: int) -> Step:
        """Describe the next step. prefilling: the result of `prefilling()`. slots: free slots."""
        decoding = len(self.running) - len(prefilling)
        longest = int(self.max_num_scheduled_tokens)
        pool = self.kv_cache_manager.block_pool
        # Each group of layers has separate blocks for the same tokens.
        groups = len(self.kv_cache_config.kv_cache_groups)
        free = int(pool.get_num_free_blocks()) * int(self.block_size) // max(1, groups)
        budget = longest - self._decode_tokens * decoding
        return Step(prefilling, decoding, slots, budget, longest, free)

    def splits_prompts(self) -> bool:
        """Whether vLLM may compute a prompt in parts. Models that need all of it at once, such as
        encoders, refuse."""
        return bool(self.scheduler_config.enable_chunked_prefill)

    def prefill_of(self, output: SchedulerOutput, names: Collection[str]) -> dict[str, int]:
        """Return the prompt tokens that a step computes for these requests."""
        tokens = output.num_scheduled_tokens
        return {name: tokens[name] for name in names if tokens.get(name, 0) > self._decode_tokens}

    def earlier_tokens(self, output: SchedulerOutput) -> int:
        """Return the tokens before the computed ones, summed over the sequences of a step."""
        new = output.scheduled_new_reqs
        known = sum([request.num_computed_tokens for request in new]) if new else 0
        return int(known + sum(output.scheduled_cached_reqs.num_computed_tokens))

    def attention_pairs_of(self, prefill: Mapping[str, int]) -> int:
        """Return the pairs of `attention_pairs` of the step that was scheduled last. prefill: the
        result of `prefill_of`."""
        computed = self.requests
        return sum(
            attention_pairs(tokens, int(computed[name].num_computed_tokens) - tokens)
            for name, tokens in prefill.items()
        )

    def limits(self) -> dict[str, int]:
        """Return the engine's limits: sequences and tokens of a step, and KV blocks."""
        return {
            "slots": int(self.max_num_running_reqs),
            "step_tokens": int(self.max_num_scheduled_tokens),
            "kv_blocks": int(self.kv_cache_config.num_blocks),
            "block_tokens": int(self.block_size),
        }

    def _reserve_prefill_lookahead(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        if num_new_tokens <= self._decode_tokens:
            if self.num_prefill_lookahead <= 1:
                # Same result as vLLM's method, faster for requests in decode.
                return num_new_tokens if num_new_tokens > 0 else 0
            return int(
                super()._reserve_prefill_lookahead(request, num_computed_tokens, num_new_tokens)
            )
        limited = self._limited(request, num_new_tokens, num_computed_tokens)
        tokens = int(super()._reserve_prefill_lookahead(request, num_computed_tokens, limited))
        if self.prompt_budget is not None:
            running = request.status == RequestStatus.RUNNING
            lacking = int(request.num_tokens) - num_computed_tokens
            self.prompt_budget.take(
                request.request_id, running, tokens, lacking, num_computed_tokens
            )
        return tokens

    def _mamba_block_aligned_split(
        self, request: Request, num_new_tokens: int, *cached: int, **kwargs: Any
    ) -> int:
        # Apply the limit before vLLM aligns the end of the chunk.
        context = int(request.num_computed_tokens) + sum(cached)
        tokens = self._limited(request, num_new_tokens, context)
        return int(super()._mamba_block_aligned_split(request, tokens, *cached, **kwargs))

    def _handle_blocked_waiting_request(self, request: Request) -> bool:
        if self.connector is not None and request.request_id in self.reset_preempted_req_ids:
            # vLLM never resumes a request in the step that preempts it. A connector may rely on it.
            return False
        if not super()._handle_blocked_waiting_request(request):
            return False
        budget = self.prompt_budget
        return budget is None or not budget.passes_over(request.request_id, int(request.num_tokens))

    def _limited(self, request: Request, tokens: int, context: int) -> int:
        budget = self.prompt_budget
        # vLLM chooses where prompts with images are split: an image is computed in one step.
        if budget is None or tokens <= self._decode_tokens or request.has_encoder_inputs:
            return tokens
        running = request.status == RequestStatus.RUNNING
        left = budget.left(request.request_id, running, tokens, context)
        if running and request.lora_request:
            # vLLM counts the adapters of scheduled requests only. If it skipped this one, it could
            # admit more adapters than it can hold, and the next step would fail.
            return max(left, min(tokens, int(self.block_size)))
        return left
