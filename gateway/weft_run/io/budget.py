"""The budget of a run: tokens and failed rows. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from weft_run.language.requests import LlmRequest
from weft_run.plan.commands import Work

# A token of text or code rarely has fewer UTF-8 bytes, so that reservations are rarely too small.
_BYTES_PER_TOKEN: Final = 2
# Tokens that a chat template adds to each message.
_MESSAGE_TOKENS: Final = 8
# Reserved for the answer of a call without a limit.
OPEN_ANSWER_TOKENS: Final = 1024


def reserved(request: LlmRequest) -> int:
    """Return an upper estimate of the tokens that a call uses."""
    most = request.parameters.get("max_tokens", request.parameters.get("max_completion_tokens"))
    answer = most if isinstance(most, int) else OPEN_ANSWER_TOKENS
    prompt = sum(
        _MESSAGE_TOKENS + len(text.encode()) // _BYTES_PER_TOKEN for _, text in request.messages
    )
    return prompt + answer


@dataclass(slots=True)
class Budget:
    """Admits calls while the tokens used and reserved stay within the limit.

    tokens: maximum prompt and answer tokens, None: no limit. errors: maximum failed rows, None: no
    limit. used: tokens of finished calls. failed: failed rows. is_free: whether the answer of a
    call is known, so that it uses no tokens.
    """

    tokens: int | None = None
    errors: int | None = None
    used: int = 0
    failed: int = 0
    is_free: Callable[[Work], bool] = lambda _: False
    _calls: dict[int, int] = field(default_factory=dict)
    _reserved: int = 0

    def admit(self, work: Work) -> bool:
        """Reserve the tokens of a call. False: the call must wait until calls in flight return
        their reservations; if no call is in flight, the budget is spent.
        """
        if self.tokens is None or self.is_free(work):
            return True
        assert isinstance(work.request, LlmRequest)
        most = reserved(work.request)
        if self.used + self._reserved + most > self.tokens:
            return False
        self._calls[work.number] = most
        self._reserved += most
        return True

    def settle(self, call: int, tokens: int) -> None:
        """A call has ended and used `tokens`."""
        self._reserved -= self._calls.pop(call, 0)
        self.used += tokens

    def row_failed(self) -> None:
        """A row has failed."""
        self.failed += 1

    @property
    def spent(self) -> str:
        """Return "errors" if too many rows have failed, "" if not."""
        return "errors" if self.errors is not None and self.failed > self.errors else ""
