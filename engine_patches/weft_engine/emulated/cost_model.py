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

        step_s + max(weights_s, prefill * prefill_token_s + decode * decode_sequence_s)
               + context * context_token_s + swapped * swapped_block_s

    step_s: cost of every step (launches, sampling, scheduling). weights_s: reading the weights
    once; it hides the arithmetic of a small batch. prefill_token_s, decode_sequence_s: arithmetic
    of one prompt token and of one decoding sequence. context_token_s: reading one token's KV, for
    all tokens before the computed ones. swapped_block_s: moving one KV block between device and
    host. All are in seconds; ValueError for a negative one.

    The quadratic part of attention in a prefill is left out: at 2,000 tokens of context it is 7% of
    an 8B model's arithmetic for the token (4 x layers x hidden x context against 2 x parameters).
    """

    step_s: float
    weights_s: float = 0.0
    prefill_token_s: float = 0.0
    decode_sequence_s: float = 0.0
    context_token_s: float = 0.0
    swapped_block_s: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.step_s + self.weights_s <= 0:
            raise ValueError("a step must take time: step_s or weights_s must be above 0")

    def step(self, prefill: int, decode: int, context: int, swapped: int = 0) -> float:
        """Return the seconds of one step, in whole ticks, at least one."""
        arithmetic = prefill * self.prefill_token_s + decode * self.decode_sequence_s
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
