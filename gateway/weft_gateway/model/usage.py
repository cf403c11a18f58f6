"""The tokens of an answer, and what the calls of a day have used."""

from __future__ import annotations

from operator import add
from typing import NamedTuple


class Usage(NamedTuple):
    """The tokens of an answer, with the names of an engine's report. cached_tokens: the part of the
    prompt that was in the KV cache. reasoning_tokens: the part of the output that is reasoning.
    """

    prompt_tokens: int
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0


class Payer(NamedTuple):
    """Whose usage a call is. agent: the client's name in its user agent, or `batch` or `prefill`.
    program: "" if the call names none. Without both: programs beyond the day's rows.
    """

    tenant: str
    agent: str
    model: str
    program: str


class Used(NamedTuple):
    """What calls used, in integers, so that sums are exact. failed, uncounted: of the calls, those
    with an error, and others whose tokens the engine did not tell. engine_us: engine time,
    microseconds.
    """

    calls: int = 0
    failed: int = 0
    uncounted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    engine_us: int = 0
    nanodollars: int = 0

    def plus(self, other: Used) -> Used:
        """Return the sum."""
        return Used(*map(add, self, other))
