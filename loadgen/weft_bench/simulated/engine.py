"""What a simulated engine is to those who drive it: calls in, tokens and reports out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from weft_engine.kv_command import KvCommand
from weft_engine.wire import CallContext, CallReport


@dataclass(frozen=True, slots=True)
class Work:
    """One call as an engine sees it. `context.call` is unique among the calls in the engine.

    text: prompt and answer, `TOKEN_BYTES` a token (`weft_bench.simulated.tokens`): what two calls
    begin with in common, they share in the prefix cache. prompt_tokens, output_tokens: at least 1.
    """

    context: CallContext
    text: bytes
    prompt_tokens: int
    output_tokens: int


@dataclass(slots=True)
class Happened:
    """What a step has brought. tokens: how many each call that computed got. reports: of calls that
    have ended, which got their last tokens in the same step."""

    tokens: dict[str, int] = field(default_factory=dict)
    reports: Sequence[CallReport] = ()


class Engine(Protocol):
    """One step is on its way at most: `start` begins it, `finish` ends it. Instants are seconds of
    a clock of the caller's; calls are added at any time and aborted between steps."""

    @property
    def busy(self) -> bool:
        """Whether a step is on its way."""
        ...

    def fits(self, tokens: int) -> bool:
        """Whether a call of this length, prompt and answer, can ever run."""
        ...

    def add(self, work: Work, now: float) -> None:
        """A call comes. It must fit."""
        ...

    def start(self, now: float, until: float) -> float | None:
        """Begin what comes next, if there is work; returns when it will have ended. Several steps
        in which nothing can change may be one, as long as it ends by `until`."""
        ...

    def finish(self, now: float) -> Happened:
        """What is on its way has ended."""
        ...

    def abort(self, call: str, now: float) -> CallReport | None:
        """Take a call out; what it had used until now, or None if it is not here."""
        ...

    def check(self, policy: str) -> None:
        """ValueError for an order that cannot be had."""
        ...

    def switch(self, policy: str, now: float) -> None:
        """Go on under another order, which `check` lets pass."""
        ...

    def reset_cache(self) -> None:
        """Forget the prefix cache, as far as no call uses it."""
        ...

    def advise(self, advice: KvCommand) -> None:
        """Keep or let go of a program's blocks. An engine may pass over it."""
        ...

    def state(self) -> dict[str, Any]:
        """Queues and counters, named as the plugin's."""
        ...

    def violations(self) -> list[str]:
        """What is inconsistent between two steps, in words; empty if nothing is."""
        ...
