"""The K queues with exponentially growing quanta (Agentix 4.2.2, Figure 10)."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueLadder:
    """Queue 0 is the best. Each queue covers the attained service that follows that of the queue
    before it, and grants a quantum of that width; the last queue has neither an upper bound nor a
    quantum.

    count: K. first_quantum_s: width of queue 0, seconds. growth: ratio of neighbouring widths.
    """

    count: int
    first_quantum_s: float
    growth: float

    def quantum(self, queue: int) -> float:
        """Seconds of service that a call may use in this queue; infinite in the last one."""
        if queue >= self.count - 1:
            return math.inf
        return self.first_quantum_s * self.growth**queue

    def index(self, service_s: float) -> int:
        """The queue of a program with this attained service (Algorithm 1, line 12)."""
        ceiling = 0.0
        for queue in range(self.count - 1):
            ceiling += self.quantum(queue)
            if service_s < ceiling:
                return queue
        return self.count - 1
