"""Duration of an engine's step. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Virtual time advances in multiples of this. A power of two makes sums and differences of instants
# exact in floating point, so a duration does not depend on the number of steps it is summed from.
TICK_S: Final = 2.0**-20


@dataclass(frozen=True, slots=True)
class CostModel:
    """Duration of a step, a roofline and three linear terms:

        step_s + max(weights_s, prefill * prefill_token_s + pairs * prefill_pair_s
                                + decode * decode_sequence_s)
               + context * context_token_s + swapped * swapped_block_s

    step_s: cost of every step (launches, sampling, scheduling). weights_s: reading the weights
    once; it hides the arithmetic of a small batch. prefill_token_s, decode_sequence_s: arithmetic
    of one prompt token and of one decoding sequence, without attention. prefill_pair_s: arithmetic
    of attention for one pair of `attention_pairs`. context_token_s: reading one token's KV, for all
    tokens before the computed ones; it hides the arithmetic of attention in a decoding sequence.
    swapped_block_s: moving one KV block between device and host. All are in seconds; ValueError for
    a negative one.
    """

    step_s: float
    weights_s: float = 0.0
    prefill_token_s: float = 0.0
    decode_sequence_s: float = 0.0
    context_token_s: float = 0.0
    swapped_block_s: float = 0.0
    prefill_pair_s: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.step_s + self.weights_s <= 0:
            raise ValueError("a step must take time: step_s or weights_s must be above 0")

    def step(
        self, prefill: int, decode: int, context: int, pairs: int = 0, swapped: int = 0
    ) -> float:
        """Return the seconds of one step, in whole ticks, at least one. pairs: see
        `attention_pairs`, summed over its prompts."""
        arithmetic = (
            prefill * self.prefill_token_s
            + pairs * self.prefill_pair_s
            + decode * self.decode_sequence_s
        )
        seconds = (
            self.step_s
            + max(self.weights_s, arithmetic)
            + context * self.context_token_s
            + swapped * self.swapped_block_s
        )
        return max(1, round(seconds / TICK_S)) * TICK_S


def on_tick(seconds: float) -> float:
    """Return the nearest instant of virtual time."""
    return round(seconds / TICK_S) * TICK_S
