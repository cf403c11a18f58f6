"""The protocol of a simulated engine: calls in, tokens and reports out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from weft_engine.kv_command import KvCommand
from weft_engine.wire import CallContext, CallReport


@dataclass(frozen=True, slots=True)
class Work:
    """One call for an engine. `context.call` is unique among the calls in the engine.

    text: prompt and answer, `TOKEN_BYTES` per token (`weft_bench.simulated.tokens`). Calls share a
    common prefix of their texts in the prefix cache. prompt_tokens, output_tokens: at least 1.
    """

    context: CallContext
    text: bytes
    prompt_tokens: int
    output_tokens: int


@dataclass(slots=True)
class Happened:
    """The result of a step.

    tokens: number of new tokens of each call that got any. reports: of the calls that have ended.
    Their last tokens come in the same step.
    """

    tokens: dict[str, int] = field(default_factory=dict)
    reports: Sequence[CallReport] = ()


class Engine(Protocol):
    """An engine that runs at most one step at a time.

    `start` begins a step and `finish` ends it. Times are seconds of the caller's clock. Calls are
    added at any time and aborted between steps.
    """

    @property
    def busy(self) -> bool:
        """Whether a step is in progress."""
        ...

    def fits(self, tokens: int) -> bool:
        """Return whether a call of this length, prompt plus answer, can ever run."""
        ...

    def add(self, work: Work, now: float) -> None:
        """Add a call. It must fit."""
        ...

    def start(self, now: float, until: float) -> float | None:
        """Begin the next step if there is work. Returns its end time, or None without work.

        Several steps without a change in the batch may run as one if they end by `until`.
        """
        ...

    def finish(self, now: float) -> Happened:
        """End the current step."""
        ...

    def abort(self, call: str, now: float) -> CallReport | None:
        """Remove a call. Returns the report of its usage so far, or None if it is unknown."""
        ...

    def check(self, policy: str) -> None:
        """Raise ValueError if the order is unknown or has invalid options."""
        ...

    def switch(self, policy: str, now: float) -> None:
        """Continue with another order. `check` must accept it."""
        ...

    def reset_cache(self) -> None:
        """Clear the prefix cache, except for blocks in use."""
        ...

    def advise(self, advice: KvCommand) -> None:
        """Keep or release a program's blocks. An engine may ignore this."""
        ...

    def state(self) -> dict[str, Any]:
        """Return queue lengths and counters under the plugin's names."""
        ...

    def violations(self) -> list[str]:
        """Return the inconsistencies between two steps as text, or an empty list."""
        ...
