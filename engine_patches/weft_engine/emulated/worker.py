"""The worker without a model: `--worker-cls weft_engine.emulated.worker.EmulatedWorker`."""

from __future__ import annotations

from typing import Any

import torch

from weft_engine.emulated import compat
from weft_engine.emulated.batch import Batch, Sequence, Step
from weft_engine.emulated.clock import COUNTERS, DeviceClock
from weft_engine.emulated.settings import EmulatedSettings
from weft_engine.emulated.tokens import Vocabulary
from weft_engine.emulated.transfers import Block, NoTransfers, Transfers, transfers_of


class EmulatedWorker(compat.WorkerBase):  # type: ignore[misc]
    """Takes the time of a GPU for each step, and returns tokens that depend on the prompt and the
    position only. ValueError for settings or a configuration of vLLM that cannot be emulated."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settings = EmulatedSettings.from_config(self.vllm_config.additional_config)
        shape = self._settings.shape
        self._asynchronous = not compat.synchronous(self.vllm_config)
        self._clock = DeviceClock(self._settings.dilate, self._asynchronous, COUNTERS)
        self._batch = Batch()
        self._transfers: Transfers = NoTransfers()
        # A block of vLLM's may have another number of tokens than one of the preset.
        self._block_share = self.cache_config.block_size / shape.block_tokens
        self._launched: tuple[Step, float] | None = None
        if self.parallel_config.world_size > 1:
            raise ValueError(
                "an emulated engine has one worker: the preset says how many GPUs it emulates"
            )
        if self.vllm_config.speculative_config is not None or self.lora_config is not None:
            raise ValueError("an emulated engine has no speculative decoding and no LoRA")

    # -- start ---------------------------------------------------------------------------------

    def init_device(self) -> None:
        """Use the CPU, without distributed state."""
        self.device = torch.device("cpu")

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Read the tokenizer's vocabulary. There are no weights."""
        self._vocabulary = Vocabulary(*compat.pieces_of(self.model_config))

    def get_supported_tasks(self) -> tuple[str, ...]:
        """Generation only: vLLM answers other tasks, such as embeddings, with an error."""
        return ("generate",)

    def get_supported_kv_cache_layouts(self) -> list[str]:
        """All, because there is no attention."""
        return compat.layouts()

    def get_kv_cache_spec(self) -> dict[str, Any]:
        """One layer with the KV bytes of the whole emulated model."""
        size = round(self._settings.shape.block_bytes * self._block_share)
        return compat.page(self.cache_config.block_size, size)

    def determine_available_memory(self) -> int:
        """Return the KV memory of the preset. Nothing is allocated."""
        shape = self._settings.shape
        return shape.kv_blocks * shape.block_bytes

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """Prepare the transfers of KV blocks."""
        shape, dilate = self._settings.shape, self._settings.dilate
        block = Block(
            seconds=shape.cost.swapped_block_s * self._block_share * dilate,
            size=round(shape.block_bytes * self._block_share),
        )
        self._transfers = transfers_of(
            self.vllm_config.kv_transfer_config,
            block,
            lambda blocks: COUNTERS.add(moved_blocks=blocks),
        )

    def compile_or_warm_up_model(self) -> Any:
        """Do nothing."""
        return compat.CompilationTimes(0.0, 0.0)

    def update_max_model_len(self, max_model_len: int) -> None:
        """vLLM has reduced the context to the KV memory."""
        self.model_config.max_model_len = max_model_len

    def get_kv_connector_handshake_metadata(self) -> None:
        """Return None: no other engine reads this one's blocks."""

    # -- steps ---------------------------------------------------------------------------------

    def execute_model(self, scheduler_output: Any) -> Any:
        """Launch a step. `sample_tokens` returns its output, except for a step without work."""
        begin = self._clock.begin()
        step = self._batch.take(scheduler_output)
        moves = self._transfers.begin(scheduler_output, begin)
        if not step.names:
            return compat.result({}, self._transfers.finished(begin))
        blocks = round(moves.blocks * self._block_share)
        cost_s = self._settings.shape.cost.step(
            step.prefill, step.decode, step.context, step.pairs, blocks
        )
        self._launched = step, self._clock.launch(cost_s, step.busy, moves.ready_at)
        return None

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Return the output of the launched step at its end; at once with asynchronous scheduling,
        as an output that waits."""
        assert self._launched is not None, "no step was launched"
        step, end = self._launched
        self._launched = None
        rows: dict[str, Any] = {}
        if grammar_output is not None:
            named = grammar_output.structured_output_request_ids
            rows = dict(zip(named, grammar_output.grammar_bitmask, strict=False))
        tokens: dict[str, list[int]] = {name: [] for name in step.names}
        for name, position in step.sampled.items():
            tokens[name] = [self._token(name, position, rows.get(name))]

        def take() -> Any:
            self._clock.wait(end)
            return compat.result(tokens, self._transfers.finished(end))

        return compat.Later(take) if self._asynchronous else take()

    def _token(self, name: str, position: int, row: Any) -> int:
        sequence = self._batch.sequences[name]
        params = sequence.params
        stops = params.all_stop_token_ids
        if row is not None:
            return self._vocabulary.allowed(sequence.seed, position, stops, row)
        if position >= self._settings.answer_tokens - 1 and self._endless(sequence):
            return int(params.eos_token_id)
        return self._vocabulary.word(sequence.seed, position, stops)

    def _endless(self, sequence: Sequence) -> bool:
        """Whether only the context limits the answer."""
        params = sequence.params
        room = self.model_config.max_model_len - sequence.prompt
        return params.eos_token_id is not None and (params.max_tokens or room) >= room

    def execute_dummy_batch(self) -> None:
        """Do nothing."""

    def take_draft_token_ids(self) -> None:
        """Return None: there is no speculative decoding."""

    def synchronize_device(self) -> None:
        """Do nothing: each step has ended when its output is taken."""

    def reset_mm_cache(self) -> None:
        """Do nothing."""

    def reset_encoder_cache(self) -> None:
        """Do nothing."""
