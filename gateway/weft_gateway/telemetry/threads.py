"""Derives a program's threads, forks, joins and critical path from its receipts. Pure.

The result is computed on request; no state is kept while calls run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final

from weft_gateway.telemetry.receipts import Receipt

# Maximum number of listed threads (the latest started) and of calls on the critical path (the
# last).
MAX_SHOWN: Final = 256


@dataclass(slots=True)
class ThreadStory:
    """One thread and its calls, as far as receipts exist. Points in time are Unix times; durations
    are in seconds. parent: the thread that started it, or "". ended_s: end of its last call, None
    while a call is in flight; ended: that call's outcome. joined_by: threads that continued with
    its answer. reported: an engine has reported usage; otherwise it is unknown.
    """

    thread: str
    parent: str
    first_s: float
    last_s: float
    calls: int = 0
    errors: int = 0
    service_s: float = 0.0
    waiting_s: float = 0.0
    ended_s: float | None = 0.0
    ended: str = ""
    joined_by: dict[str, None] = field(default_factory=dict)
    reported: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the thread in the API's format."""
        return {
            "thread": self.thread,
            "parent": self.parent or None,
            "calls": self.calls,
            "errors": self.errors,
            "service_s": self.service_s if self.reported else None,
            "waiting_s": self.waiting_s if self.reported else None,
            "first_call_at": self.first_s,
            "last_call_at": self.last_s,
            "ended_at": self.ended_s,
            "ended": self.ended or None,
            "joined_by": list(self.joined_by),
        }


def threads_of(receipts: Sequence[Receipt]) -> list[ThreadStory]:
    """Return a program's threads in the order of their first calls. receipts: in the order of
    arrival.
    """
    found: dict[str, ThreadStory] = {}
    for receipt in receipts:
        name, at_s = receipt.thread, receipt.arrived_s
        if receipt.outcome == "refused":
            continue  # A refused call belongs to no thread.
        story = found.get(name)
        if story is None:
            story = found[name] = ThreadStory(name, receipt.parent, at_s, at_s)
        story.last_s = at_s
        story.calls += 1
        story.errors += receipt.outcome == "error"
        if receipt.report is not None:
            story.reported = True
            story.service_s += receipt.report.service_s
            story.waiting_s += receipt.report.waiting_s
        if not receipt.outcome:
            story.ended_s, story.ended = None, ""
        elif story.ended_s is not None and at_s + receipt.total_s >= story.ended_s:
            story.ended_s, story.ended = at_s + receipt.total_s, receipt.outcome
        for other in receipt.joined:
            if other in found and other != name:
                found[other].joined_by[name] = None
    return list(found.values())


def critical_path(receipts: Sequence[Receipt]) -> tuple[float, list[Receipt]]:
    """Return the seconds and calls of the longest path of calls, by service, in which each call
    starts after the end of the one before (Agentix, Algorithm 1, line 4). receipts: in the order of
    arrival; calls in flight are on no path.
    """
    longest_s, last = 0.0, -1
    before: dict[int, int] = {}
    # (end time, number, path length including this call)
    running: list[tuple[float, int, float]] = []
    for number, receipt in enumerate(receipts):
        while running and running[0][0] <= receipt.arrived_s:
            _, ended, path_s = heappop(running)
            if path_s > longest_s:
                longest_s, last = path_s, ended
        if receipt.outcome and receipt.report is not None:
            before[number] = last
            path_s = longest_s + receipt.report.service_s
            heappush(running, (receipt.arrived_s + receipt.total_s, number, path_s))
    for _, ended, path_s in running:
        if path_s > longest_s:
            longest_s, last = path_s, ended
    path = []
    while last >= 0:
        path.append(receipts[last])
        last = before[last]
    return longest_s, path[::-1]


def to_json(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """Return threads and critical path as parts of a program's trace."""
    threads = threads_of(receipts)
    seconds, path = critical_path(receipts)
    return {
        "threads": [thread.to_json() for thread in threads[-MAX_SHOWN:]],
        "threads_left_out": max(0, len(threads) - MAX_SHOWN),
        "critical_path": {
            "service_s": seconds if path else None,
            "requests": [receipt.request_id for receipt in path[-MAX_SHOWN:]],
            "requests_left_out": max(0, len(path) - MAX_SHOWN),
        },
    }
