"""The cost of an engine's steps and prefill, as running means. Pure, without other packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SMOOTHING: Final = 0.1
# Steps with fewer tokens are not limited by arithmetic, so their time says little about prefill.
_PREFILL_TOKENS: Final = 256
# Limit of one step's effect on the estimate of steps without prefill, as a multiple of it.
_OUTLIER: Final = 2.0


def attention_pairs(tokens: int, context: int) -> int:
    """Return the pairs of tokens that attention compares: each of `tokens` prompt tokens with
    itself, with those of them before it, and with `context` earlier ones."""
    return tokens * context + tokens * (tokens + 1) // 2


@dataclass(slots=True)
class StepCost:
    """The duration of a step, learned from past steps.

    base_s: seconds of a step without prefill; those of the shortest step until one without prefill
    has run (`measured`). token_s: additional seconds per prompt token. Both are 0 at first.
    """

    base_s: float = 0.0
    measured: bool = False
    _prefill_s: float = 0.0
    _prefill_tokens: float = 0.0

    @property
    def token_s(self) -> float:
        """See StepCost."""
        return self._prefill_s / self._prefill_tokens if self._prefill_tokens else 0.0

    def note(self, duration_s: float, prefill_tokens: int) -> None:
        """Learn from a step. prefill_tokens: the prompt tokens that it computed."""
        if duration_s <= 0:
            return
        if prefill_tokens:
            # A quotient of sums weights steps by their tokens.
            self._prefill_s += _SMOOTHING * (max(0.0, duration_s - self.base_s) - self._prefill_s)
            self._prefill_tokens += _SMOOTHING * (prefill_tokens - self._prefill_tokens)
            if not self.measured:
                self.base_s = min(duration_s, self.base_s or duration_s)
        elif self.measured:
            sample = min(duration_s, _OUTLIER * self.base_s)
            self.base_s += _SMOOTHING * (sample - self.base_s)
        else:
            self.base_s, self.measured = duration_s, True

    def prefill_share(self, tokens: int) -> float:
        """Return the fraction of a step's duration that this many prompt tokens cause, 0 to 1; all
        of it until a step without prefill has run."""
        prefill_s = self.token_s * tokens
        base_s = self.base_s if self.measured else 0.0
        return prefill_s / (base_s + prefill_s) if prefill_s else 0.0


@dataclass(slots=True)
class PrefillPace:
    """Seconds per prompt token, learned from the engine's steps; 0 before the first step of
    prefill."""

    token_s: float = 0.0

    def note(self, tokens: int, sequences: int, duration_s: float) -> None:
        """Learn from a step that computed `tokens` tokens of `sequences` sequences."""
        if tokens < max(_PREFILL_TOKENS, 2 * sequences) or duration_s <= 0:
            return
        pace = duration_s / tokens
        self.token_s += (pace - self.token_s) * (_SMOOTHING if self.token_s else 1.0)
