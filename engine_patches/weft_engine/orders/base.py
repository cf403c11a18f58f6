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
    cached_tokens, uncached_tokens: of a waiting call's context, what the prefix cache had when it
    was last looked up and what is to be computed. running: one of its sequences is in the batch.
    promoted: it stands where it does for having starved.
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
    cached_tokens: int = 0
    uncached_tokens: int = 0
    running: bool = False
    promoted: bool = False


@dataclass(frozen=True, slots=True)
class QueueState:
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

    @property
    def sees_cache(self) -> bool:
        """Whether it needs `CallView.cached_tokens` and `uncached_tokens`."""
        ...

    @property
    def ranks_across(self) -> bool:
        """Whether ranks count before queues, which then only say what `review` is about."""
        ...

    @property
    def displaces_for_blocks(self) -> bool:
        """Whether a running call is displaced for its KV blocks too, or for its slot alone."""
        ...

    @property
    def keep_share(self) -> float:
        """How long room is kept for a program between two calls, as a share of the time that a
        prefill of the whole cache takes."""
        ...

    def enter(self, view: CallView) -> QueueState:
        """The standing of a call that arrives."""
        ...

    def review(self, view: CallView) -> QueueState | None:
        """A new standing for a call that was served or starves; None leaves it where it is."""
        ...

    def starves_in(self, view: CallView) -> float:
        """Seconds of further waiting after which `review` would promote the call."""
        ...

    def rank(self, view: CallView) -> float:
        """Place inside a queue, the lowest first; equal ranks go by `turn`."""
        ...

    def turn(self, view: CallView, entry: int) -> int:
        """Place among equal ranks, the lowest first. entry: how many came into queues before."""
        ...

    def max_hold_s(self, view: CallView, keep_s: float) -> float:
        """How many seconds more a call may be held back for room that is kept so long for others;
        asked only where room is kept."""
        ...


class PlainOrder:
    """What orders have in common that look neither at tokens nor at the cache."""

    __slots__ = ()

    @property
    def counts_tokens(self) -> bool:
        """Tokens are not counted."""
        return False

    @property
    def sees_cache(self) -> bool:
        """The cache is not looked at."""
        return False

    @property
    def ranks_across(self) -> bool:
        """Queues come first."""
        return False

    @property
    def displaces_for_blocks(self) -> bool:
        """Slots and blocks count alike."""
        return True

    @property
    def keep_share(self) -> float:
        """No room is kept."""
        return 0.0

    def turn(self, view: CallView, entry: int) -> int:
        """First come, first served."""
        return entry

    def max_hold_s(self, view: CallView, keep_s: float) -> float:
        """Nobody is held back."""
        return 0.0


@dataclass(frozen=True, slots=True)
class OneQueue(PlainOrder):
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

    def enter(self, view: CallView) -> QueueState:
        """Everyone stands in the one queue."""
        return QueueState(0, math.inf)

    def review(self, view: CallView) -> QueueState | None:
        """Nothing ever changes."""
        return None

    def starves_in(self, view: CallView) -> float:
        """Never: there is no better queue."""
        return math.inf

    def rank(self, view: CallView) -> float:
        """All alike."""
        return 0.0
