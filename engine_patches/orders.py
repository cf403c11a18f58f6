"""Orders: which queue a call is in, from what its program and it have used (Agentix 4.2). Pure.

An order is a frozen dataclass. It is told a call's numbers and answers with the call's standing;
the scheduler keeps the standing and sorts by it. Adding an order is one class and one line in
`ORDERS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from engine_patches.queues import QueueLadder


@dataclass(frozen=True, slots=True)
class CallView:
    """What an order may look at. All in seconds.

    program_service_s, program_waiting_s: of the program's finished calls (T_p, W_p).
    queue, quantum_left_s: the call's standing now. call_service_s, call_waiting_s: T_c and W_c of
    the call since it arrived or was last promoted; waiting includes the present wait.
    """

    program_service_s: float
    program_waiting_s: float
    queue: int = 0
    quantum_left_s: float = math.inf
    call_service_s: float = 0.0
    call_waiting_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """A call's queue (0 is the best), what is left of its quantum there in seconds, and whether
    it got there by the anti-starvation rule, which resets its own T_c and W_c."""

    queue: int
    quantum_left_s: float
    promoted: bool = False


class Order(Protocol):
    """A policy of the engine's waiting queue."""

    @property
    def name(self) -> str:
        """The word it is chosen by."""
        ...

    @property
    def displaces(self) -> bool:
        """Whether a waiting call of a better queue may displace a running one."""
        ...

    def enter(self, view: CallView) -> Standing:
        """The standing of a call that arrives."""
        ...

    def review(self, view: CallView) -> Standing | None:
        """A new standing for a call, or None to leave it where it is."""
        ...


@dataclass(frozen=True, slots=True)
class Fcfs:
    """First come, first served: one queue, no quantum, nobody displaced. vLLM's own order."""

    name: str = "fcfs"
    displaces: bool = False

    def enter(self, view: CallView) -> Standing:
        """Everyone stands in the one queue."""
        return Standing(0, math.inf)

    def review(self, view: CallView) -> Standing | None:
        """Nothing ever changes."""
        return None


@dataclass(frozen=True, slots=True)
class Plas:
    """Program-level attained service (Agentix equation 1 and Algorithm 1, single-threaded).

    A call enters the queue of its program's attained service, is demoted when its quantum is
    spent, and is promoted to the first queue when (W_p + W_c) / (T_p + T_c) >= beta.
    """

    ladder: QueueLadder = field(default_factory=QueueLadder)
    beta: float = 10.0
    name: str = "plas"
    displaces: bool = True

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise ValueError(f"beta must be positive, got {self.beta}")

    def enter(self, view: CallView) -> Standing:
        """Lines 11 to 13: the queue of the program's service, with that queue's quantum."""
        queue = self.ladder.index(view.program_service_s)
        return Standing(queue, self.ladder.quantum(queue))

    def review(self, view: CallView) -> Standing | None:
        """Lines 20 to 30: demotion, then anti-starvation, which wins."""
        if view.queue > 0:
            service = view.program_service_s + view.call_service_s
            waiting = view.program_waiting_s + view.call_waiting_s
            # A call that has not waited since its last promotion has nothing to complain of,
            # however long its program waited before: else it could never be demoted again.
            if view.call_waiting_s > 0 and waiting >= self.beta * service:
                return Standing(0, self.ladder.quantum(0), promoted=True)
        if view.quantum_left_s <= 0 and view.queue < self.ladder.count - 1:
            return Standing(view.queue + 1, self.ladder.quantum(view.queue + 1))
        return None


def _plas(options: Mapping[str, Any]) -> Order:
    return Plas(ladder=ladder_from(options), beta=float(options.get("beta", 10.0)))


def ladder_from(options: Mapping[str, Any]) -> QueueLadder:
    """The queue ladder that the options describe; ValueError names what is wrong."""
    return QueueLadder(
        count=int(options.get("queues", 8)),
        first_quantum_s=float(options.get("first_quantum_s", 0.5)),
        growth=float(options.get("growth", 2.0)),
    )


ORDERS: Final[dict[str, Callable[[Mapping[str, Any]], Order]]] = {
    "fcfs": lambda options: Fcfs(),
    "plas": _plas,
}


def build_order(name: str, options: Mapping[str, Any]) -> Order:
    """The order of that name. ValueError lists the known names."""
    if name not in ORDERS:
        raise ValueError(f"unknown policy {name!r}; known: {', '.join(sorted(ORDERS))}")
    return ORDERS[name](options)
