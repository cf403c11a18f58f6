"""PLAS that sees the cache: programs whose context is still cached go on before colder ones.

Calls of a queue that take turns make every program's context leave a short cache before its next
call comes, and then all of them are computed again (Agentix orders a queue first come, first
served). What to do about it is in docs/orders.md, with what was tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from weft_engine.orders.base import CallView, QueueState
from weft_engine.orders.plas import Plas

# Uncached tokens are compared in units of about a step's prefill: less is not worth an exchange of
# two programs.
_GRAIN_TOKENS: Final = 2048
# A step that computes no more costs no more than one that only decodes: weights are read anyway.
_FREE_TOKENS: Final = 256
# Lies between calls of neighbouring queues, however much one of them has to compute.
_MARGIN: Final = 0.5
# Less than the margin.
_AHEAD: Final = 0.25
_MICROSECONDS: Final = 1e6


@dataclass(frozen=True, slots=True)
class WarmPlas(Plas):
    """By queue as in PLAS, but who is warm counts as `lead` queues better: who runs, finds most of
    its context in the cache, or has next to nothing to compute. Then by what is left to compute, in
    units of 2,048 tokens; then the program that arrived first.

    keep_share: how long room is kept for a program between two calls, as a share of the time that
    a prefill of the whole cache would take; 0: none is. ValueError for a negative number.
    """

    lead: float = 2.0
    keep_share: float = 0.25
    name: str = "warm_plas"

    def __post_init__(self) -> None:
        # What a dataclass with slots has in place of itself is not what `super()` looks for.
        Plas.__post_init__(self)
        for name in ("lead", "keep_share"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")

    @property
    def margin(self) -> float | None:
        """Half a queue."""
        return _MARGIN

    @property
    def sees_cache(self) -> bool:
        """It lives by it."""
        return True

    @property
    def ranks_across(self) -> bool:
        """A warm call passes colder ones of better queues."""
        return True

    @property
    def displaces_for_blocks(self) -> bool:
        """Never: what the victim has computed would be gone."""
        return False

    def review(self, view: CallView) -> QueueState | None:
        """As PLAS, and in the first queue too calls are promoted: warm ones pass them there."""
        waits = view.call_waiting_s > 0 and not view.promoted
        if view.queue == 0 and waits and self.starves_in(view) <= 0:
            return QueueState(0, self.ladder.quantum(0), promoted=True)
        return Plas.review(self, view)

    def starves_in(self, view: CallView) -> float:
        """As PLAS. In the first queue, where most have not been served at all, a call counts as
        served for so long as leads to the last queue whose warm calls pass it."""
        if view.queue > 0:
            return Plas.starves_in(self, view)
        passing = self.ladder.floor(int(min(self.lead, self.ladder.count)))
        if view.promoted or passing == 0:
            return math.inf
        service = max(self.attained(view) + view.call_service_s, passing)
        return self.beta * service - (self.waited(view) + view.call_waiting_s)

    def rank(self, view: CallView) -> float:
        """Queue, less the lead of who is warm, plus less than half for what is to be computed. Who
        was promoted is better than the warmest of the queue, so that no stream of them passes it,
        but displaces nobody there."""
        if view.running:
            return view.queue - self.lead
        if view.promoted:
            return view.queue - self.lead - _AHEAD
        uncached = view.uncached_tokens
        warm = view.cached_tokens > uncached or uncached <= _FREE_TOKENS
        pieces = uncached // _GRAIN_TOKENS
        return view.queue - self.lead * warm + _MARGIN * pieces / (1 + pieces)

    def turn(self, view: CallView, entry: int) -> int:
        """By the program's arrival, then by the call's entry into its queue."""
        return (int(view.program_arrival_s * _MICROSECONDS) << 40) + entry

    def max_hold_s(self, view: CallView, keep_s: float) -> float:
        """The rule against starvation, with the time that room is kept as the least service: who
        has used nothing may be held back for beta times as long."""
        if view.promoted:
            return 0.0
        service = max(self.attained(view) + view.call_service_s, keep_s)
        return self.beta * service - (self.waited(view) + view.call_waiting_s)
