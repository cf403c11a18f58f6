"""What the mock engine says that it did: token counts and, for Weft's gateway, call reports.

Figures are a function of the calls seen so far, never of the clock, so tests can state them: a
prompt has one token per four bytes of its text, a shared prefix of whole messages is cached in
blocks of 16 tokens, and time is virtual.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from engine_patches.wire import CallContext, CallReport
from loadgen.mock_engine.answers import Usage

BYTES_PER_TOKEN: Final = 4
BLOCK_TOKENS: Final = 16
PREFILL_S_PER_TOKEN: Final = 0.0001
DECODE_S_PER_TOKEN: Final = 0.002
WAITING_S: Final = 0.001


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return ""


def pieces(body: dict[str, Any]) -> list[str]:
    """The prompt as text, one piece per message."""
    messages = body.get("messages")
    if isinstance(messages, list):
        return [_text(m.get("content")) for m in messages if isinstance(m, dict)]
    return [_text(body.get("prompt"))]


@dataclass(slots=True)
class Accounting:
    """One engine's prefix cache and policy. `max_words`: output length where a call sets none."""

    max_words: int
    policy: str = "fcfs"
    _seen: set[int] = field(default_factory=set)

    def set_policy(self, policy: str, *, reset_cache: bool) -> None:
        """Name the policy that reports carry; forget the prefix cache if asked."""
        self.policy = policy
        if reset_cache:
            self._seen.clear()

    def count(self, body: dict[str, Any]) -> Usage:
        """Token counts of a call; its prompt is in the prefix cache from now on."""
        size = cached = prefix = 0
        hit = True
        for piece in pieces(body):
            size += len(piece.encode())
            prefix = hash((prefix, piece))
            hit = hit and prefix in self._seen
            if hit:
                cached = size
            self._seen.add(prefix)
        prompt = max(1, size // BYTES_PER_TOKEN)
        # As in vLLM, the last token is always computed: its logits are needed.
        blocks = min(cached // BYTES_PER_TOKEN, prompt - 1) // BLOCK_TOKENS
        return Usage(prompt, blocks * BLOCK_TOKENS, self._words(body))

    def _words(self, body: dict[str, Any]) -> int:
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        if not isinstance(limit, int) or limit < 1:
            return self.max_words
        return limit if body.get("ignore_eos") else min(limit, self.max_words)

    def report(self, call: str, usage: Usage, body: dict[str, Any]) -> CallReport:
        """The report of a finished call. An empty `call` is taken from the body's context."""
        context = CallContext.from_xargs(body.get("vllm_xargs"))
        return CallReport(
            call=call or (context.call if context else ""),
            service_s=(usage.prompt_tokens - usage.cached_tokens) * PREFILL_S_PER_TOKEN
            + usage.output_tokens * DECODE_S_PER_TOKEN,
            waiting_s=WAITING_S,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
            queue_path=(0,),
            policy=self.policy,
        )
