"""Receipts: why a call went where it went and in what order, kept a while for people to read.

Keeping one is a few references put together; what people see is written when they ask. Bounded in
number and age. A gateway has the receipts of the calls that it served.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine_patches.wire import CallContext, CallReport
from gateway.model import Decision, ProgramKey
from gateway.policies.retain.fair import FairRoom


@dataclass(slots=True)
class Receipt:
    """One call. It grows while the call runs; `outcome` is "" until it has ended.

    source: the name that said whose call it is. arrived_s: Unix time, seconds. decision: the
    router's; replica: where the process table sent the call; reason: why, where it was not the
    router who said. told: what the engine was told.
    predicted_tokens, predicted_service_s: what was expected before the engine knew, None where
    there was nothing to go by. failed: replicas that could not be reached, with the error.
    overhead_s, first_byte_s, total_s: since the request arrived. hints: each hint and its fate.
    saved_s: seconds that overlaps took off this call's program, by overlap. tools: those that were
    dispatched before the answer had ended, and by how many seconds. joined: threads of the program
    whose answers its prompt holds, as lineage has found them.
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
    told: CallContext | None = None
    report: CallReport | None = None
    status: int = 0
    outcome: str = ""
    overhead_s: float = 0.0
    first_byte_s: float = 0.0
    total_s: float = 0.0
    failed: tuple[tuple[str, str], ...] = ()
    hints: tuple[tuple[str, str], ...] = ()
    saved_s: Mapping[str, float] = field(default_factory=dict)
    tools: tuple[tuple[str, float], ...] = ()
    joined: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As the API shows it. Durations in seconds, tokens as counts."""
        return {
            "object": "receipt",
            "request_id": self.request_id,
            "call": self.call,
            "session": self.key.program,
            "thread": self.thread,
            "parent": self.parent or None,
            "joins": list(self.joined),
            "known_by": self.source,
            "endpoint": self.endpoint,
            "model": self.model,
            "arrived_at": self.arrived_s,
            "outcome": self.outcome or "in_flight",
            "status": self.status or None,
            "place": self._place(),
            "order": self._order(),
            "predicted": {
                "prompt_tokens": self.predicted_tokens,
                "service_s": self.predicted_service_s,
            },
            "actual": self._actual(),
            "times": {
                "overhead_s": self.overhead_s,
                "first_byte_s": self.first_byte_s or None,
                "total_s": self.total_s or None,
            },
            "hints": self._hints(),
            "saved_s": dict(self.saved_s),
            "tools_dispatched": [{"name": name, "ahead_s": s} for name, s in self.tools],
        }

    def _place(self) -> dict[str, Any]:
        decision = self.decision
        return {
            "replica": self.replica,
            "reason": self._reason(),
            "scores": {name: dict(given) for name, given in decision.scores.items()},
            "rejected": dict(decision.rejected),
            "failed": [{"replica": name, "error": error} for name, error in self.failed],
        }

    def _reason(self) -> str:
        if self.reason or self.decision.replica == self.replica:
            return self.reason or self.decision.reason
        return f"home of its program; {self.decision.replica} was proposed"

    def _order(self) -> dict[str, Any] | None:
        """What the engine ordered the call by."""
        told, report = self.told, self.report
        if told is None:
            return None
        return {
            "policy": report.policy if report is not None else None,
            "program_service_s": told.service_s,
            "program_waiting_s": told.waiting_s,
            "program_critical_path_s": told.critical_path_s,
            "queues": list(report.queue_path) if report is not None else [],
        }

    def _actual(self) -> dict[str, Any] | None:
        report = self.report
        if report is None:
            return None
        return {
            "prompt_tokens": report.prompt_tokens,
            "cached_tokens": report.cached_tokens,
            "output_tokens": report.output_tokens,
            "service_s": report.service_s,
            "waiting_s": report.waiting_s,
            "preemptions": report.preemptions,
            "recomputed_tokens": report.recomputed_tokens,
            "blocks_swapped_out": report.blocks_swapped_out,
            "blocks_swapped_in": report.blocks_swapped_in,
        }

    def _hints(self) -> list[dict[str, str]]:
        fates = [{"hint": name, "fate": fate, "by": "gateway"} for name, fate in self.hints]
        for text in self.report.hints if self.report is not None else ():
            name, _, fate = text.partition("=")
            fates.append({"hint": name.removeprefix("weft_"), "fate": fate, "by": "engine"})
        return fates


class Receipts:
    """The last receipts. limit: how many, 0 for none at all; the tenant that has most gives way to
    others. max_age_s: older ones are gone."""

    def __init__(self, limit: int, max_age_s: float) -> None:
        self._limit = limit
        self._room = FairRoom[str](max(1, limit))
        self._max_age_s = max_age_s
        self._kept: dict[str, Receipt] = {}  # By call.
        self._by_request: dict[tuple[str, str], str] = {}
        self._by_program: dict[ProgramKey, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def on(self) -> bool:
        """Whether any are kept."""
        return self._limit > 0

    def add(self, receipt: Receipt) -> None:
        """Keep one; another may go. Of two requests with one id, the later is found by it."""
        if not self._limit:
            return
        self._kept[receipt.call] = receipt
        self._by_request[receipt.key.tenant, receipt.request_id] = receipt.call
        calls = self._by_program.get(receipt.key)
        if calls is None:
            calls = self._by_program[receipt.key] = {}
        calls[receipt.call] = None
        gone = self._room.put(receipt.key.tenant, receipt.call)
        if gone is not None:
            self._forget(self._kept.pop(gone[1]))

    def find(self, tenant: str, request_id: str, now_s: float) -> Receipt | None:
        """The receipt of a tenant's request, None where there is none (any more)."""
        self._expire(tenant, now_s)
        call = self._by_request.get((tenant, request_id))
        return None if call is None else self._kept.get(call)

    def story(self, key: ProgramKey, now_s: float) -> list[Receipt]:
        """A program's receipts, in the order of their calls' arrival."""
        self._expire(key.tenant, now_s)
        return list(self._of(key))

    def _of(self, key: ProgramKey) -> Iterator[Receipt]:
        return (self._kept[call] for call in self._by_program.get(key, ()))

    def _expire(self, tenant: str, now_s: float) -> None:
        """Forget a tenant's old ones, before anybody looks."""
        while (call := self._room.oldest(tenant)) is not None:
            oldest = self._kept[call]
            if oldest.arrived_s >= now_s - self._max_age_s:
                return
            del self._kept[call]
            self._room.drop(tenant, call)
            self._forget(oldest)

    def _forget(self, receipt: Receipt) -> None:
        call = receipt.call
        request = (receipt.key.tenant, receipt.request_id)
        if self._by_request.get(request) == call:
            del self._by_request[request]
        calls = self._by_program[receipt.key]
        calls.pop(call, None)
        if not calls:
            del self._by_program[receipt.key]
