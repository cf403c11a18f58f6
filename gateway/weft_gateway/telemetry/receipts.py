"""Receipts: the reasons for a call's placement and order, kept for a limited time.

Storing a receipt only collects references; the API's output is built on request. Receipts are
bounded in number and age. A gateway has the receipts of the calls that it served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from weft_engine.wire import CallContext, CallReport

from weft_gateway.model import Decision, ProgramKey, ReplicaCost
from weft_gateway.model.slo import CallBudget
from weft_gateway.model.usage import Usage
from weft_gateway.policies.fair_lru import FairLRU
from weft_gateway.policies.lateness import Overruns

# Only the plugin reports them.
_REPORTED: Final = (
    "service_s", "waiting_s", "preemptions", "recomputed_tokens", "blocks_swapped_out",
    "blocks_swapped_in",
)  # fmt: skip
# Shorter waits have more decimals, and larger token counts are in thousands.
_SHORT_S: Final = 0.1
_THOUSANDS: Final = 10_000


@dataclass(slots=True, eq=False)
class Receipt:
    """One call. It is updated while the call runs; `outcome` is "" until the call ends.

    source: the source of the call's identity. arrived_s: Unix time in seconds. decision: the
    router's decision. replica: where the process table placed the call. reason: why, if the router
    did not decide. predicted_tokens, predicted_service_s: estimates before the engine reported;
    None without a basis. failed: unreachable replicas with the error. error: code of the gateway's
    error that the client received, "" for none. begun: arrival time of the request on the
    performance counter. overhead_s, first_byte_s, total_s: seconds since then. listed: the program
    appears among finished sessions. hints: each hint and its outcome. saved_s: seconds that
    overlaps saved for this call's program, by overlap. tools: tools dispatched before the end of
    the answer, and how many seconds before. joined: threads of the program whose answers the prompt
    contains, as found by lineage. lineage: program, thread and parent under which lineage stores
    the call, if it placed the call. counted: the program for which the process table counted the
    call, if lineage later reassigned it. memory_wait_s, memory_tokens, programs_ahead: how long the
    call was deferred for KV memory, its context in tokens, and the programs before it at first.
    budget: its part of its program's deadline, None without a target. sources: where the tokens of
    its prompt came from, None if unknown. held_s: how long it was held for another reason than KV
    memory. repairs: the rules that have changed its prompt.
    """

    request_id: str
    call: str
    key: ProgramKey
    thread: str
    parent: str
    source: str
    endpoint: str
    model: str
    arrived_s: float
    decision: Decision
    replica: str
    predicted_tokens: int
    predicted_service_s: float | None
    reason: str = ""
    context: CallContext | None = None  # The context sent to the engine.
    report: CallReport | None = None
    answer_usage: Usage | None = None  # Of an answer without a report.
    status: int = 0
    outcome: str = ""
    overhead_s: float = 0.0
    first_byte_s: float = 0.0
    total_s: float = 0.0
    failed: tuple[tuple[str, str], ...] = ()
    hints: tuple[tuple[str, str], ...] = ()
    saved_s: Mapping[str, float] | None = None
    tools: tuple[tuple[str, float], ...] = ()
    joined: tuple[str, ...] = ()
    lineage: tuple[str, str, str] | None = None
    counted: ProgramKey | None = None
    error: str = ""
    memory_wait_s: float = 0.0
    memory_tokens: int = 0
    programs_ahead: int = 0
    budget: CallBudget | None = None
    sources: dict[str, Any] | None = None
    held_s: float = 0.0
    repairs: tuple[str, ...] = ()
    begun: float = 0.0
    listed: bool = True

    @classmethod
    def refused(
        cls, request_id: str, call: str, key: ProgramKey, endpoint: str, arrived_s: float
    ) -> Receipt:
        """Return the receipt of a call that was refused before placement. key: program "" if
        unknown at that time.
        """
        nowhere = Decision("", False, frozenset(), "refused")
        receipt = cls(
            request_id, call, key, "", "", "", endpoint, "", arrived_s, nowhere, "", 0, None
        )
        receipt.outcome = "refused"
        return receipt

    def fail(self, status: int, code: str, now: float) -> None:
        """Record an error that the gateway returned to the client. now: time on the performance
        counter.
        """
        self.status = self.status or status
        self.error = code
        self.total_s = self.total_s or now - self.begun

    @property
    def usage(self) -> CallReport | Usage | None:
        """The tokens that the engine counted, None if unknown."""
        return self.answer_usage if self.report is None else self.report

    def to_json(self, tenant: str = "") -> dict[str, Any]:
        """Return the receipt in the API's format. Durations are in seconds, tokens are counts.
        tenant: its name, by default its digest.
        """
        return {
            "object": "receipt",
            "request_id": self.request_id,
            "call": self.call,
            "tenant": tenant or self.key.tenant,
            "session": self.key.program or None,
            "thread": self.thread or None,
            "parent": self.parent or None,
            "joins": list(self.joined),
            "known_by": self.source or None,
            "endpoint": self.endpoint,
            "model": self.model,
            "arrived_at": self.arrived_s,
            "outcome": self.outcome or "in_flight",
            "status": self.status or None,
            "error": self.error or None,
            "place": self._place() if self.replica else None,
            "order": self._order(),
            "predicted": {
                "prompt_tokens": self.predicted_tokens,
                "service_s": self.predicted_service_s,
            },
            "actual": self._actual(),
            "prompt": self.sources,
            "memory": self._memory(),
            "slo": self._slo(),
            "times": {
                "overhead_s": self.overhead_s,
                "first_byte_s": self.first_byte_s or None,
                "total_s": self.total_s or None,
            },
            "hints": self._hints(),
            "repairs": list(self.repairs),
            "saved_s": dict(self.saved_s or {}),
            "tools_dispatched": [{"name": name, "ahead_s": s} for name, s in self.tools],
        }

    def _place(self) -> dict[str, Any]:
        decision = self.decision
        return {
            "replica": self.replica,
            "reason": self._reason(),
            "scores": {name: dict(given) for name, given in decision.scores.items()},
            "costs": None if decision.costs is None else _costs(decision.costs),
            "budget_s": decision.budget_s,
            "rejected": dict(decision.rejected),
            "failed": [{"replica": name, "error": error} for name, error in self.failed],
        }

    def _reason(self) -> str:
        if self.reason or self.decision.replica == self.replica:
            return self.reason or self.decision.reason
        return f"home of its program; {self.decision.replica} was proposed"

    def _order(self) -> dict[str, Any] | None:
        """Return the values by which the engine ordered the call."""
        context, report = self.context, self.report
        if context is None:
            return None
        return {
            "policy": report.policy if report is not None else None,
            "program_service_s": context.service_s,
            "program_waiting_s": context.waiting_s,
            "program_critical_path_s": context.critical_path_s,
            "queues": list(report.queue_path) if report is not None else [],
        }

    def _actual(self) -> dict[str, Any] | None:
        report, usage = self.report, self.usage
        if usage is None:
            return None
        return {
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens,
            **{name: getattr(report, name, None) for name in _REPORTED},
        }

    def _memory(self) -> dict[str, Any] | None:
        """Return the wait for KV memory, None for a call without one."""
        if not self.memory_wait_s:
            return None
        return {
            "memory_wait_s": self.memory_wait_s,
            "memory_tokens": self.memory_tokens,
            "programs_ahead": self.programs_ahead,
            "text": memory_text(self.memory_wait_s, self.memory_tokens, self.programs_ahead),
        }

    def _slo(self) -> dict[str, Any] | None:
        """Return the target and the budget, None for a call without a target."""
        found = self.budget
        if found is None:
            return None
        actual_s = None
        if self.outcome:
            actual_s = self.total_s - self._sent_s
        over = actual_s is not None and actual_s > found.budget_s
        return {
            "class": found.slo or None,
            "scope": found.scope,
            "deadline_s": found.deadline_s,
            "target": found.target_s,
            "left_s": found.left_s,
            "budget_s": found.budget_s,
            "predicted_s": found.cost_s or None,
            "predicted_p90_s": found.p90_s or None,
            "predicted_tokens": found.tokens or None,
            "actual_s": actual_s,
            "remaining_calls": found.remaining,
            "remaining_calls_p90": found.remaining_p90,
            "late": found.late,
            "held_s": self.held_s,
            "cause": self._cause(found, actual_s) if over and actual_s is not None else None,
        }

    @property
    def _sent_s(self) -> float:
        """Seconds until the call was sent. Only calls without a context wait here for memory."""
        return self.overhead_s + self.held_s + (0.0 if self.context else self.memory_wait_s)

    def _cause(self, found: CallBudget, actual_s: float) -> str | None:
        """Return why the call took longer than its budget, None if unknown."""
        if found.late or self.report is None:
            return found.cause
        overruns = Overruns()
        overruns.add(found, self.report, self.first_byte_s - self._sent_s, actual_s)
        return overruns.cause(actual_s - found.budget_s)

    def _hints(self) -> list[dict[str, str]]:
        fates = [{"hint": name, "fate": fate, "by": "gateway"} for name, fate in self.hints]
        for text in self.report.hints if self.report is not None else ():
            name, _, fate = text.partition("=")
            fates.append({"hint": name.removeprefix("weft_"), "fate": fate, "by": "engine"})
        return fates


def _costs(costs: Mapping[str, ReplicaCost]) -> dict[str, dict[str, float]]:
    """Return what was predicted for each replica when the call was placed."""
    return {
        name: {
            "cost_s": cost.cost_s,
            "wait_s": cost.wait_s,
            "finish_s": cost.finish_s,
            "finish_p90_s": cost.finish_high_s,
            "cached_tokens": cost.cached_tokens,
        }
        for name, cost in costs.items()
    }


def memory_text(wait_s: float, tokens: int, ahead: int) -> str:
    """Return a wait for KV memory in words, as receipts show it."""
    seconds = f"{wait_s:.1f}" if wait_s >= _SHORT_S else f"{wait_s:.3f}"
    needs = f"{tokens / 1000:.0f}k" if tokens >= _THOUSANDS else str(tokens)
    programs = "1 program" if ahead == 1 else f"{ahead} programs"
    return f"waited {seconds} s for memory: needs {needs} tokens, {programs} ahead"


class Receipts:
    """The most recent receipts. limit: maximum number, 0 to keep none; beyond it, the tenant with
    most receipts loses its oldest. max_age_s: maximum age in seconds.

    No index exists: an index per query type cost a call more than the rest of its receipt. A query
    takes about 50 ns per receipt of the tenant.
    """

    def __init__(self, limit: int, max_age_s: float = 3600.0) -> None:
        self.on: Final = limit > 0
        """Whether receipts are kept."""
        self._room = FairLRU[Receipt](max(1, limit))
        self._max_age_s = max_age_s

    def __len__(self) -> int:
        return len(self._room)

    def add(self, receipt: Receipt) -> None:
        """Store a receipt. It may evict another one."""
        if self.on:
            self._room.put(receipt.key.tenant, receipt)

    def find(self, tenant: str, request_id: str, now_s: float) -> Receipt | None:
        """Return the receipt of a tenant's request, None if it is unknown or expired. Of two
        requests with one id, return the later one.
        """
        self._expire(tenant, now_s)
        for receipt in reversed(self._room.of(tenant)):
            if receipt.request_id == request_id:
                return receipt
        return None

    def story(self, key: ProgramKey, now_s: float) -> list[Receipt]:
        """Return a program's receipts in the order of the calls' arrival."""
        self._expire(key.tenant, now_s)
        return [receipt for receipt in self._room.of(key.tenant) if receipt.key == key]

    def move(
        self, tenant: str, owner: str, program: str, shown: Callable[[str, str, str], str]
    ) -> None:
        """Reassign calls after a late result of lineage: `owner` is part of `program`, or separate
        if both are the same. `shown` returns a thread's displayed name from its owner, its name
        there and the program.
        """
        for receipt in self._room.of(tenant):
            if receipt.lineage is None or receipt.key.program == program:
                continue
            own, thread, parent = receipt.lineage
            if own == owner or (owner != program and receipt.key.program == owner):
                receipt.counted = receipt.counted or receipt.key
                receipt.key = ProgramKey(tenant, program)
                receipt.thread = shown(own, thread, program)
                receipt.parent = shown(own, parent, program) if parent else ""

    def of(self, tenant: str, now_s: float) -> list[Receipt]:
        """Return all receipts of a tenant in the order of the calls' arrival."""
        self._expire(tenant, now_s)
        return list(self._room.of(tenant))

    def unlist(self, key: ProgramKey, now_s: float) -> None:
        """Remove a program's calls so far from the finished sessions, because its handle was
        deleted.
        """
        for receipt in self.story(key, now_s):
            receipt.listed = False

    def _expire(self, tenant: str, now_s: float) -> None:
        """Drop a tenant's expired receipts before a query."""
        while (oldest := self._room.oldest(tenant)) is not None:
            if oldest.arrived_s >= now_s - self._max_age_s:
                return
            self._room.drop(tenant, oldest)
