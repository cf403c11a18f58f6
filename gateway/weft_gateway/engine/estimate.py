"""How long a prompt without messages is, before the engine has counted it. No I/O."""

from __future__ import annotations

from typing import Final

PRIOR_BYTES_PER_TOKEN: Final = 4.0
_WEIGHT: Final = 0.1
_MAX_MODELS: Final = 1024


class PromptEstimator:
    """Body bytes per token of prompts that are one raw text, learned per model as a moving average
    of what engines report. Messages are counted otherwise (`weft_gateway.engine.tokens`): one
    picture in them would make texts of any length look short.
    """

    def __init__(self) -> None:
        self._ratio: dict[str, float] = {}

    def estimate(self, model: str, body_bytes: int) -> int:
        """Prompt tokens of a call with a body of that size, at least 1."""
        return max(1, round(body_bytes / self._ratio.get(model, PRIOR_BYTES_PER_TOKEN)))

    def learn(self, model: str, body_bytes: int, prompt_tokens: int) -> None:
        """Take in what an engine counted. Reports without tokens are ignored."""
        if prompt_tokens <= 0 or body_bytes <= 0:
            return
        known = self._ratio.get(model)
        if known is None and len(self._ratio) >= _MAX_MODELS:
            return
        seen = body_bytes / prompt_tokens
        known = PRIOR_BYTES_PER_TOKEN if known is None else known
        self._ratio[model] = known + _WEIGHT * (seen - known)
