"""The Completions API: text or token ids, and their continuation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from weft_bench.simulated import tokens
from weft_bench.simulated.dialects import base
from weft_bench.simulated.dialects.base import Asked, Dialect, Refused, Usage, event


class Completions(Dialect):
    """`POST /v1/completions`, one prompt per call."""

    kind = "cmpl"

    @classmethod
    def read(cls, body: Mapping[str, Any], told: Mapping[str, bytes]) -> Asked:
        """See Dialect."""
        base.one_answer(body)
        return Asked(
            prompt=_prompt(body.get("prompt")),
            limit=base.limit(body, "max_tokens"),
            exactly=body.get("ignore_eos") is True,
            stream=body.get("stream") is True,
            include_usage=base.include_usage(body),
        )

    def plain(self, usage: Usage) -> bytes:
        """See Dialect."""
        return orjson.dumps(self._chunk(self.text, self._finish) | {"usage": usage.openai()})

    def opening(self, usage: Usage) -> Sequence[bytes]:
        """See Dialect."""
        return ()

    def token(self, number: int) -> bytes:
        """See Dialect."""
        return event(self._chunk(self.piece(number), None))

    def closing(self, usage: Usage) -> tuple[bytes, bytes]:
        """See Dialect."""
        end = event(self._chunk("", self._finish))
        if self.asked.include_usage:
            end += event(self._chunk("", None) | {"choices": [], "usage": usage.openai()})
        return end, b"data: [DONE]\n\n"

    @property
    def _finish(self) -> str:
        return "length" if self.cut_off else "stop"

    def _chunk(self, text: str, finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        identity = {"id": self.id, "object": "text_completion", "created": base.CREATED}
        return identity | {"model": self.model, "choices": [choice]}


def _prompt(prompt: Any) -> bytes:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return tokens.pad(prompt.encode())
    if isinstance(prompt, list) and prompt and all(isinstance(i, int) for i in prompt):
        return tokens.of_ids(prompt)
    raise Refused("prompt must be text or token ids; several prompts are not simulated")
