"""Due calls: the layer of the order `slack` over the default order. Pure.

A waiting call whose latest start is near is due. Of the due calls of a tenant, those that can be on
time come before all other calls, by latest start, within a share of the tenant's slots. They may
take slots of running calls of the same tenant, but not of one that would then miss its own target.
All other calls keep their places in the order: calls with much slack, calls without a budget, and
calls that cannot be on time, which lose what their target gained them there. Without budgets, this
layer does nothing.

No call starves. The slots that due calls do not get serve the default order. If the first call of
that order waits longer than the rules' patience, because due calls take the memory that it needs or
the only slot of its tenant, no call is due until it has started.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from weft_engine.call_state import CallState
from weft_engine.deadlines import Deadlines
from weft_engine.orders.slack import DueCall, DueRules, on_time

if TYPE_CHECKING:
    from weft_engine.call_table import CallTable

# Due calls of a tenant that one choice considers, the most urgent ones.
_CONSIDERED: Final = 256


class Room(Protocol):
    """The slots and the memory of an engine."""

    def slots(self) -> int:
        """All slots."""
        ...

    def free_slots(self) -> int:
        """How many sequences can be admitted before all slots are taken."""
        ...

    def may_fit(self, sequence: str) -> bool:
        """Whether the free blocks may suffice for a waiting sequence."""
        ...

    def first_not_due(self, tenant: str) -> str | None:
        """The tenant's first waiting sequence that is neither due nor deferred."""
        ...


@dataclass(slots=True)
class _Lane:
    """The calls of one tenant.

    waiting: due ones, by latest start. leading: those that come first, and those that started as
    such, by name. head: the first call of the default order. blocked_at: when it was seen behind
    due calls first.
    """

    waiting: list[tuple[float, str, CallState]] = field(default_factory=list)
    leading: dict[str, CallState] = field(default_factory=dict)
    changed: bool = False
    next_at: float = math.inf
    head: str = ""
    blocked_at: float = math.inf

    def remove(self, latest: float, name: str) -> None:
        """A call does not wait any more, or its latest start has changed."""
        at = bisect_left(self.waiting, (latest, name))
        if at < len(self.waiting) and self.waiting[at][1] == name:
            del self.waiting[at]
            self.changed = True


class DueCalls:
    """The due calls of one engine. next_at: see CallLayer. An event costs O(log calls), and a
    choice costs O(due calls)."""

    def __init__(self, rules: DueRules, table: CallTable) -> None:
        self.next_at = math.inf
        self._rules = rules
        self._table = table
        self._lanes: dict[str, _Lane] = {}
        # The latest starts of waiting calls with a budget, by name.
        self._latest: dict[str, tuple[float, CallState]] = {}
        # When they become due.
        self._coming = Deadlines()
        self._weights = 0.0

    @property
    def pending(self) -> bool:
        """Whether a call that comes first still waits."""
        return any(True for _ in self.claims())

    def note(self, call: CallState, now: float) -> None:
        """A call has arrived, has started, was preempted, or has left."""
        name, lane = call.context.call, self._lanes.get(call.context.tenant)
        view = call.view(now)
        if lane is not None and (name in lane.leading or name == lane.head):
            lane.changed = True
        if view.latest_start_s is not None:
            self._coming.drop(name)
            found = self._latest.pop(name, None)
            if lane is not None and found is not None:
                lane.remove(found[0], name)
            if call.waiting_since is not None:
                self._latest[name] = view.latest_start_s, call
                self._coming.set(name, view.latest_start_s - self._rules.margin_s)
        if lane is not None and name in lane.leading and not call.alive:
            del lane.leading[name]
            self._table.lead(call, None, now)
        if self._weights != self._table.shares.weights:
            # Tenants came, went or have other weights: the slots of each have changed.
            self._weights = self._table.shares.weights
            for one in self._lanes.values():
                one.changed, self.next_at = True, now
        changed = lane is not None and lane.changed
        self.next_at = min(self.next_at, now if changed else self._coming.first)

    def refresh(self, now: float, room: Room) -> bool:
        """Choose the calls that come first. Returns whether a call has moved."""
        if now < self.next_at:
            return False
        for name in self._coming.due(now):
            latest, call = self._latest[name]
            lane = self._lanes.setdefault(call.context.tenant, _Lane())
            insort(lane.waiting, (latest, name, call))
            lane.changed = True
        moved = False
        for tenant, lane in list(self._lanes.items()):
            if not lane.waiting and not lane.leading:
                del self._lanes[tenant]
            elif lane.changed or now >= lane.next_at:
                moved |= self._choose(tenant, lane, now, room)
        soonest = min((lane.next_at for lane in self._lanes.values()), default=math.inf)
        # Later than now: this step has to pass first.
        later = math.nextafter(now, math.inf)
        self.next_at = max(later, min(self._coming.first, soonest))
        return moved

    def claims(self) -> Iterator[list[CallState]]:
        """The calls that come first and still wait, for each tenant that has some, by latest
        start."""
        for lane in self._lanes.values():
            found = [call for call in lane.leading.values() if call.waiting]
            if found:
                yield sorted(found, key=lambda call: call.rank)

    def put_last(self, tenant: str) -> None:
        """The claims of a tenant come after those of the other tenants from now on."""
        self._lanes[tenant] = self._lanes.pop(tenant)

    def spares(self, call: CallState, claims: list[CallState], now: float) -> bool:
        """Whether a running call must not be preempted for one of these claims."""
        if call.due:
            return True
        latest = call.view(now).latest_start_s
        wait_s = max(math.inf if c.context.cost_s is None else c.context.cost_s for c in claims)
        return self._rules.spares(None if latest is None else latest - now, wait_s)

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        lanes = self._lanes.values()
        leading = [item for lane in lanes for item in lane.leading.items()]
        found = [f"{name} leads and is not due" for name, call in leading if not call.due]
        gone = [name for name, call in leading if not call.alive]
        gone += [name for name, (_, call) in self._latest.items() if not call.waiting]
        return [*found, *(f"{name} is due and does not wait" for name in gone)]

    def _choose(self, tenant: str, lane: _Lane, now: float, room: Room) -> bool:
        lane.changed = False
        moved = self._drop_late(lane, now)
        portion = self._table.shares.portion(tenant)
        limit = self._rules.slots(room.slots(), portion)
        chosen: dict[str, tuple[float, CallState]] = {}
        lane.next_at = math.inf
        if not self._yields(tenant, lane, limit > room.slots() * portion - 1, now, room):
            chosen = self._leading(lane, limit, now)
        if lane.waiting:
            lane.next_at = min(lane.next_at, math.nextafter(lane.waiting[0][0], math.inf))
        for name, call in list(lane.leading.items()):
            if call.waiting_since is not None and name not in chosen:
                del lane.leading[name]
                self._table.lead(call, None, now)
                moved = True
        for name, (latest, call) in chosen.items():
            if name not in lane.leading:
                lane.leading[name] = call
                moved = True
            self._table.lead(call, latest, now)
        return moved

    def _drop_late(self, lane: _Lane, now: float) -> bool:
        """Remove the calls that cannot be on time any more, and rank them as such. Returns whether
        one has another rank now."""
        count, moved = bisect_left(lane.waiting, (now,)), False
        for _, _, call in lane.waiting[:count]:
            rank, call.late = call.rank, True
            # The place of a call that came first is taken from it with the others.
            if not call.due:
                self._table.lead(call, None, now)
                moved |= call.rank != rank
        del lane.waiting[:count]
        return moved

    def _leading(self, lane: _Lane, limit: int, now: float) -> dict[str, tuple[float, CallState]]:
        """Return the waiting calls that come first, with their latest starts."""
        running = [call for call in lane.leading.values() if call.waiting_since is None]
        used = sum(len(call.running) + len(call.waiting) for call in running)
        considered = lane.waiting[:_CONSIDERED]
        due = [
            DueCall(latest - now, _cost_s(call), call.context.slo_weight)
            for latest, _, call in considered
        ]
        chosen, spare_s = on_time(due, max(0, limit - used), [_cost_s(call) for call in running])
        lane.next_at = min(lane.next_at, math.nextafter(now + spare_s, math.inf))
        found = {}
        for (latest, name, call), fits in zip(considered, chosen, strict=True):
            if fits and used + len(call.waiting) <= limit:
                used += len(call.waiting)
                found[name] = latest, call
        return found

    def _yields(self, tenant: str, lane: _Lane, all_slots: bool, now: float, room: Room) -> bool:
        """Whether the first call of the default order has waited behind due calls for too long.
        all_slots: due calls may take all slots of the tenant."""
        sequence = room.first_not_due(tenant)
        first = None if sequence is None else self._table.of(sequence)
        head = "" if first is None else first.context.call
        if head != lane.head:
            lane.head, lane.blocked_at = head, math.inf
        if sequence is None or first is None:
            return False
        lacks = all_slots or (room.free_slots() > 0 and not room.may_fit(sequence))
        if lacks and lane.blocked_at == math.inf:
            lane.blocked_at = now
        until = lane.blocked_at + self._rules.patience_s
        if now < until:
            lane.next_at = until
        return now >= until


def _cost_s(call: CallState) -> float:
    """Return the predicted rest of a call, seconds."""
    return max(0.0, (call.context.cost_s or 0.0) - call.service_s)
