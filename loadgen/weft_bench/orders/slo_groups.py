"""Groups of calls with similar deadlines: the rule of the order `qlm`. Pure.

HexGen-Flow 5.1 describes QLM (Patke et al., "Queue Management for SLO-Oriented Large Language Model
Serving", 2024): requests are grouped by their SLOs, first come, first served inside a group. If the
estimated wait violates the SLO of a group, the groups are reordered, the one with the least
remaining time first. The papers leave open, and this module decides: deadlines of one factor of two
are a group. While no target is violated, the group whose first call waits longest is served, which
is the order of arrival. The wait is the predicted service of all waiting calls over the slots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from weft_engine.call_state import CallState
from weft_engine.deadlines import Deadlines
from weft_engine.reorder import Places, SchedulerView

# Predicted service is added up in whole microseconds, so that sums do not drift.
_SECOND: Final = 1_000_000


@dataclass(slots=True)
class _Group:
    """Waiting calls by name, their targets, and their predicted service in microseconds. level: the
    place of the group."""

    calls: dict[str, CallState] = field(default_factory=dict)
    targets: Deadlines = field(default_factory=Deadlines)
    work: int = 0
    level: int = 0


class SloGroups:
    """The groups of one engine. default_left_s: the time left of calls without a target. next_at:
    see ReorderRule. An event costs O(log calls); a new order of groups costs O(calls that move)."""

    def __init__(self, default_left_s: float, places: Places) -> None:
        self.next_at = math.inf
        self._default_left_s = default_left_s
        self._places = places
        self._groups: dict[int, _Group] = {}
        # Waiting calls: the group, and the predicted service in microseconds.
        self._waiting: dict[str, tuple[int, int]] = {}

    def note(self, call: CallState, now: float) -> None:
        """A call has arrived, has started, was preempted, or has left."""
        name = call.context.call
        key, work = self._waiting.pop(name, (0, None))
        if work is not None:
            group = self._groups[key]
            group.targets.drop(name)
            group.work -= work
            del group.calls[name]
            if not group.calls:
                del self._groups[key]
        if call.waiting_since is not None:
            view = call.view(now)
            left_s = self._default_left_s if view.left_s is None else view.left_s
            key, work = _key(call), round(_SECOND * max(0.0, (view.cost_s or 0.0) - call.service_s))
            group = self._groups.setdefault(key, _Group())
            group.calls[name] = call
            group.targets.set(name, view.queued_s - call.service_s + left_s)
            group.work += work
            self._waiting[name] = key, work
            self._put(call, group.level)
        self.next_at = now

    def served(self, tokens: Mapping[str, int]) -> None:
        """Service moves no group."""

    def refresh(self, now: float, scheduler: SchedulerView) -> bool:
        """Reorder the groups. Returns whether a call has moved."""
        if now < self.next_at:
            return False
        targets = {key: group.targets.first for key, group in self._groups.items()}
        wait_s = sum(group.work for group in self._groups.values()) / _SECOND / scheduler.slots()
        spare_s = min(targets.values(), default=math.inf) - now - wait_s
        levels = dict.fromkeys(targets, 0)
        if spare_s < 0:
            levels = {key: at for at, key in enumerate(sorted(targets, key=targets.__getitem__))}
        # Without an event, only a target that comes nearer changes the order.
        self.next_at = math.nextafter(now + spare_s, math.inf) if spare_s >= 0 else math.inf
        moved = False
        for key, level in levels.items():
            group = self._groups[key]
            if group.level != level:
                group.level, moved = level, True
                for call in group.calls.values():
                    self._put(call, level)
        return moved

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        calls = {n: c for group in self._groups.values() for n, c in group.calls.items()}
        found = [f"{name} is in a group and does not wait" for name in calls.keys() ^ self._waiting]
        return found + [f"{name} does not wait" for name, call in calls.items() if not call.waiting]

    def _put(self, call: CallState, level: int) -> None:
        for sequence in call.waiting:
            self._places.put_at(sequence, level)


def _key(call: CallState) -> int:
    """Return the group of a call: the power of two above its deadline. Calls without one are a
    group."""
    deadline_s = call.context.deadline_s
    return -(2**31) if deadline_s is None else math.frexp(deadline_s)[1]
