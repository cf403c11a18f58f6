"""Estimates the length of a prompt without messages, before the engine has counted it. No I/O."""

from __future__ import annotations

from typing import Final

PRIOR_BYTES_PER_TOKEN: Final = 4.0
_WEIGHT: Final = 0.1
_MAX_MODELS: Final = 1024


class PromptEstimator:
    """Body bytes per token of single-text prompts, learned per model as a moving average of the
    engines' counts. `weft_gateway.engine.tokens` counts messages: one image in them would make
    texts of any length seem short.
    """

    def __init__(self) -> None:
        self._ratio: dict[str, float] = {}

    def estimate(self, model: str, body_bytes: int) -> int:
        """Return the estimated prompt tokens of a call with `body_bytes` body bytes, at least 1."""
        return max(1, round(body_bytes / self._ratio.get(model, PRIOR_BYTES_PER_TOKEN)))

    def learn(self, model: str, body_bytes: int, prompt_tokens: int) -> None:
        """Update the average from an engine's count. Reports without tokens are ignored."""
        if prompt_tokens <= 0 or body_bytes <= 0:
            return
        known = self._ratio.get(model)
        if known is None and len(self._ratio) >= _MAX_MODELS:
            return
        seen = body_bytes / prompt_tokens
        known = PRIOR_BYTES_PER_TOKEN if known is None else known
        self._ratio[model] = known + _WEIGHT * (seen - known)
