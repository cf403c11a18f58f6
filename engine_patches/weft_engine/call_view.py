"""A call as orders see it, and its queue."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class CallView:
    """The view of a call that orders use. Durations are in seconds.

    program_service_s, program_waiting_s: of the program's finished calls (T_p, W_p).
    critical_path_s: the longest chain of finished calls in the program. program_arrival_s: Unix
    time. queue, quantum_left_s: the call's current queue and what is left of its quantum.
    call_service_s, call_waiting_s: T_c and W_c since the call arrived or was last promoted, the
    current wait included. total_service_s: all service of the call. queued_s: the instant on the
    engine's clock at which the call would have been queued if it had waited only once. budget_s,
    cost_s: the caller's deadline and expected execution time; left_s, path_s: until the program's
    target when the call was queued, and the predicted service until then. deadline_s: from the
    arrival of the program to the target. None if not given. late: the predicted path does not fit
    into the time until the target any more.
    """

    program_service_s: float = 0.0
    program_waiting_s: float = 0.0
    critical_path_s: float = 0.0
    program_arrival_s: float = 0.0
    queue: int = 0
    quantum_left_s: float = math.inf
    call_service_s: float = 0.0
    call_waiting_s: float = 0.0
    total_service_s: float = 0.0
    queued_s: float = 0.0
    budget_s: float | None = None
    cost_s: float | None = None
    left_s: float | None = None
    path_s: float | None = None
    deadline_s: float | None = None
    late: bool = False

    @property
    def latest_start_s(self) -> float | None:
        """The instant on the engine's clock at which the call has to continue, so that its program
        or turn meets its target if the predicted path is right and nothing waits later. It does not
        change while the call waits. None without a target."""
        if self.left_s is None:
            return None
        return self.queued_s + self.left_s - max(self.path_s or 0.0, self.total_service_s)


@dataclass(frozen=True, slots=True)
class QueueState:
    """A call's queue (0 is the best) and the rest of its quantum there, seconds. promoted: set by
    the anti-starvation rule, which resets the call's T_c and W_c."""

    queue: int
    quantum_left_s: float
    promoted: bool = False
