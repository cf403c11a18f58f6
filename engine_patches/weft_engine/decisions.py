"""One decision of an engine's scheduler: the order of the queues, and who is preempted. It calls
vLLM through the hooks only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from weft_engine.call_table import CallTable
from weft_engine.preemption import Preemption
from weft_engine.residents import Residents
from weft_engine.settings import PluginSettings
from weft_engine.short_calls import ShortCalls
from weft_engine.tenant_queues import TenantQueues

# While tenants contend: waiting sequences that are moved to the front of the queue beyond the free
# slots, and the most that are moved in one decision.
_SPARE: Final = 2
_MAX_ADMISSIONS: Final = 32
# Waiting sequences that the choice of residents sees first while tenants contend.
_SEEN_FIRST: Final = 8


class Decisions:
    """Decides for one engine. hooks: its scheduler's handles (SchedulerHooks). short: its short
    calls.

    residents: of the order in use, None for orders without them. preempted: how many running
    sequences were preempted for waiting ones.
    """

    def __init__(
        self, hooks: Any, call_table: CallTable, settings: PluginSettings, short: ShortCalls
    ) -> None:
        self.residents: Residents | None = None
        self.preempted = 0
        self._hooks = hooks
        self._calls = call_table
        self._short = short
        self._tenant_queues = TenantQueues(call_table)
        self._preemption = Preemption(
            hooks, call_table, self._tenant_queues, settings.max_displacements
        )
        self._contended = False

    def touch(self) -> None:
        """Blocks or slots may have become free."""
        self._preemption.touch()

    def decide(self, now: float) -> None:
        """Reorder the queues and preempt running sequences."""
        calls, hooks = self._calls, self._hooks
        calls.promote(now)
        contended = calls.shares.contended
        if contended != self._contended:
            self._contended = contended
            self._tenant_queues.clear()
            hooks.make_reorderable(contended)
            # The waiting queue was not sorted before.
            calls.moved.update(calls.sequences())
        self._reorder(now)
        if self.residents is not None:
            self.residents.refresh(now)
        self.sort()
        if contended:
            self._admit_by_tenant(now)
        elif self._may_preempt():
            self._preempt_all(self._preemption.decide(now), now)
            self.sort()

    def sort(self) -> None:
        """Bring the sequences whose ranks have changed to their places."""
        moved = self._calls.moved
        if moved:
            self._preemption.touch()
            if self._contended:
                self._tenant_queues.invalidate(moved)
            self._hooks.sort_queues(self._calls.rank, moved, waiting_too=not self._contended)
            moved.clear()

    def choose_victims(self) -> None:
        """If tenants contend and blocks may run out in this step: vLLM preempts the last running
        requests, so put those of the tenants with the most running sequences there."""
        if not self._calls.shares.contended:
            return
        lacking = self._hooks.blocks_lacking()
        last = self._preemption.preempted_for(lacking) if lacking > 0 else []
        if last and self._hooks.put_last(last):
            # The next decision restores the order of the ranks.
            self._calls.moved.update(request.request_id for request in last)

    def seen_first(self) -> Iterator[str]:
        """While tenants contend: the waiting sequences that are admitted next, which are not at the
        front of the queue yet."""
        if self._contended:
            self._tenant_queues.invalidate(self._calls.moved)
            yield from self._tenant_queues.next(_SEEN_FIRST, self._hooks.readiness())

    def _reorder(self, now: float) -> None:
        rule = self._calls.rule
        # Without a reason for a refresh, this must not change what the order decides.
        if rule is None or now < rule.next_at:
            return
        self.sort()
        if rule.refresh(now, self._hooks):
            if self.residents is not None:
                self.residents.freed()
            self.sort()

    def _may_preempt(self) -> bool:
        hooks = self._hooks
        claims = self._calls.order.preempts or self._short.leading()
        return bool(claims and hooks.waiting and hooks.running and hooks.admits())

    def _admit_by_tenant(self, now: float) -> None:
        """Tenants contend: preempt for tenants below their share, and move the sequences that are
        admitted next to the front of the queue."""
        hooks = self._hooks
        if not (hooks.waiting and hooks.admits()):
            return
        coming: list[str] = []
        admitting = None if self.residents is None else self.residents.admitting
        if self._calls.order.preempts_tenants and hooks.running and admitting != 0:
            victims, coming = self._preemption.decide_fairly(now)
            self._preempt_all(victims, now)
            self.sort()
        slots = hooks.free_slots() - len(coming)
        if slots > 0:
            count = min(slots + _SPARE, _MAX_ADMISSIONS)
            fits = None if coming else hooks.may_fit
            found = self._tenant_queues.next(count + len(coming), hooks.readiness(), fits)
            coming += [name for name in found if name not in coming]
        hooks.bring_forward(coming)

    def _preempt_all(self, victims: Iterable[str], now: float) -> None:
        for sequence in victims:
            call = self._calls.of(sequence)
            if call is not None:
                call.displaced += 1
            self.preempted += 1
            self._hooks.preempt(self._hooks.requests[sequence], now)
