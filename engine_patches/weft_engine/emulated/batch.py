"""The sequences on the emulated device: the work of a step, and the sequences that get a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weft_engine.emulated.tokens import seed_of
from weft_engine.step_cost import attention_pairs


@dataclass(slots=True)
class Sequence:
    """One sequence. prompt: its tokens. seed: decides its answer. params: vLLM's sampling
    parameters."""

    prompt: int
    seed: int
    params: Any


@dataclass(slots=True)
class Step:
    """The work of one step, as in the cost model. sampled: the sequences that get a token, each
    with the position of the token in its answer. busy: the device had work before the step."""

    prefill: int
    decode: int
    context: int
    pairs: int
    names: list[str]
    sampled: dict[str, int]
    busy: bool


class Batch:
    """Follows the scheduler's outputs."""

    def __init__(self) -> None:
        self.sequences: dict[str, Sequence] = {}
        self._idle = True

    def take(self, output: Any) -> Step:
        """Return the work of a step. output: vLLM's SchedulerOutput."""
        for name in output.finished_req_ids:
            self.sequences.pop(name, None)
        busy = not self._idle and bool(self.sequences)
        # Without work for the device, sequences wait for KV blocks.
        self._idle = not output.total_num_scheduled_tokens
        step = Step(0, 0, 0, 0, list(output.num_scheduled_tokens), {}, busy)
        for name, computed, answered in self._scheduled(output):
            tokens = output.num_scheduled_tokens[name]
            step.context += computed
            if tokens == 1 and answered:
                step.decode += 1
            else:
                step.prefill += tokens
                step.pairs += attention_pairs(tokens, computed)
            # A resumed sequence computes its prompt and its answer again before the next token.
            if computed + tokens >= self.sequences[name].prompt + answered:
                step.sampled[name] = answered
        return step

    def _scheduled(self, output: Any) -> Iterator[tuple[str, int, int]]:
        """Yield each sequence with its computed tokens and the tokens of its answer."""
        for new in output.scheduled_new_reqs:
            tokens = new.prompt_token_ids or []
            self.sequences[new.req_id] = Sequence(len(tokens), seed_of(tokens), new.sampling_params)
            known = new.prefill_token_ids
            answered = 0 if known is None else len(known) - len(tokens)
            yield new.req_id, new.num_computed_tokens, answered
        cached = output.scheduled_cached_reqs
        yield from zip(
            cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True
        )
