"""The rules of the order `slack`: which calls are due, and which of them can be on time. Pure.

Slack is the rest of a call's budget minus its predicted remaining time; the call has to start while
the slack is not negative. Being early is worth nothing to a target. So only calls whose latest
start is near come first, and the time of all others is used for the mean latency.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class DueRules:
    """A waiting call is due while 0 <= slack <= margin_s. share: the fraction of the slots that due
    calls get, rounded down, but at least one. patience_s: how long the first call of the default
    order may wait for memory or for a tenant's only slot behind due calls, seconds.
    """

    margin_s: float
    share: float
    patience_s: float

    def slots(self, slots: int, portion: float) -> int:
        """Return how many slots the due calls of a tenant may hold. portion: its part of the
        slots."""
        return max(1, int(slots * portion * self.share))

    def spares(self, slack_s: float | None, wait_s: float) -> bool:
        """Whether a running call would miss its target if it were preempted. slack_s: its slack,
        None without a budget. wait_s: how long it would wait at least. A call that is late anyway
        misses nothing more."""
        return slack_s is not None and 0 <= slack_s < wait_s + self.margin_s


class DueCall(NamedTuple):
    """A waiting call that is due. slack_s: not negative. cost_s: predicted, 0 if unknown. weight:
    of its class."""

    slack_s: float
    cost_s: float
    weight: float


def on_time(
    calls: Sequence[DueCall], free: int, running: Sequence[float]
) -> tuple[list[bool], float]:
    """Choose the calls that can start in time: Moore and Hodgson's rule (1968), with weights and
    several slots.

    calls: by slack, the least first. free: slots that due calls may take now. running: predicted
    remaining seconds of each due call that runs. Each call takes the slot that is free first. When
    one would start too late, the call with the highest cost per weight among those chosen so far,
    itself included, is dropped. Otherwise a call that cannot be on time would make others late too.

    Returns for each call whether it was chosen; and the seconds after which a chosen call would be
    too late if no running call had ended earlier than predicted.
    """
    chosen = [False] * len(calls)
    # When each slot is free, in seconds from now, and the slot. Replaced entries stay in the heap.
    ends = [0.0] * min(free, len(calls)) + list(running)
    heap = [(end, slot) for slot, end in enumerate(ends)]
    heapify(heap)
    costly: list[tuple[float, int]] = []
    taken: dict[int, int] = {}
    starts: dict[int, float] = {}
    for number, call in enumerate(calls):
        # Of equal ones, the last one is dropped.
        heappush(costly, (-call.cost_s / call.weight, -number))
        while heap:
            while heap[0][0] != ends[heap[0][1]]:
                heappop(heap)
            start, slot = heap[0]
            if start <= call.slack_s:
                chosen[number], taken[number], starts[number] = True, slot, start
                ends[slot] = start + call.cost_s
                heappush(heap, (ends[slot], slot))
                break
            dropped = -heappop(costly)[1]
            if dropped == number:
                break
            # The calls behind it on its slot start earlier.
            chosen[dropped] = False
            slot = taken.pop(dropped)
            ends[slot] -= calls[dropped].cost_s
            heappush(heap, (ends[slot], slot))
    spare = (calls[number].slack_s - starts[number] for number in taken)
    return chosen, min(spare, default=math.inf)
