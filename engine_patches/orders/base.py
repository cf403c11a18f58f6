"""What every order speaks: a view of a call in, a standing out. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CallView:
    """What an order may look at. Durations in seconds.

    program_service_s, program_waiting_s: of the program's finished calls (T_p, W_p).
    critical_path_s: the longest chain of finished calls seen in the program. program_arrival_s:
    Unix time. program_tokens: tokens served to the program here, weighted (VTC). queue,
    quantum_left_s: the call's standing now. call_service_s, call_waiting_s: T_c and W_c of the call
    since it arrived or was last promoted; waiting includes the present wait. total_service_s: all
    service of the call so far. queued_s: instant since which the call would have waited had it
    waited once, on the engine's clock. budget_s, cost_s, remaining_s: what the caller says of the
    call's deadline, its execution and its program's remaining work; None where it says nothing.
    """

    program_service_s: float = 0.0
    program_waiting_s: float = 0.0
    critical_path_s: float = 0.0
    program_arrival_s: float = 0.0
    program_tokens: float = 0.0
    queue: int = 0
    quantum_left_s: float = math.inf
    call_service_s: float = 0.0
    call_waiting_s: float = 0.0
    total_service_s: float = 0.0
    queued_s: float = 0.0
    budget_s: float | None = None
    cost_s: float | None = None
    remaining_s: float | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A call's queue (0 is the best), what is left of its quantum there in seconds, and whether
    it got there by the anti-starvation rule, which resets its own T_c and W_c."""

    queue: int
    quantum_left_s: float
    promoted: bool = False


class Order(Protocol):
    """A policy of the engine's waiting queue: by queue, then by rank, then first come."""

    @property
    def name(self) -> str:
        """The word it is chosen by."""
        ...

    @property
    def displaces(self) -> bool:
        """Whether a waiting call may displace a running one that stands worse."""
        ...

    @property
    def margin(self) -> float | None:
        """How much better a rank must be to displace inside one queue; None: it never does."""
        ...

    @property
    def moving(self) -> bool:
        """Whether the ranks of a program's calls change as it is served."""
        ...

    @property
    def counts_tokens(self) -> bool:
        """Whether it needs `CallView.program_tokens`."""
        ...

    def enter(self, view: CallView) -> Standing:
        """The standing of a call that arrives."""
        ...

    def review(self, view: CallView) -> Standing | None:
        """A new standing for a call that was served or starves; None leaves it where it is."""
        ...

    def starves_in(self, view: CallView) -> float:
        """Seconds of further waiting after which `review` would promote the call."""
        ...

    def rank(self, view: CallView) -> float:
        """Place inside a queue, the lowest first; equal ranks are first come, first served."""
        ...


@dataclass(frozen=True, slots=True)
class OneQueue:
    """The common part of orders without queues: nobody is demoted or promoted."""

    @property
    def displaces(self) -> bool:
        """Nobody is displaced."""
        return False

    @property
    def margin(self) -> float | None:
        """Nor by rank."""
        return None

    @property
    def moving(self) -> bool:
        """Ranks stay as they are."""
        return False

    @property
    def counts_tokens(self) -> bool:
        """Tokens are not counted."""
        return False

    def enter(self, view: CallView) -> Standing:
        """Everyone stands in the one queue."""
        return Standing(0, math.inf)

    def review(self, view: CallView) -> Standing | None:
        """Nothing ever changes."""
        return None

    def starves_in(self, view: CallView) -> float:
        """Never: there is no better queue."""
        return math.inf

    def rank(self, view: CallView) -> float:
        """All alike."""
        return 0.0
