"""The gateway's part of a call, with the gateway's own router, process table and records.

They are called in the same order as in `weft_gateway.calls`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from weft_engine.tags import Tag, flatten
from weft_engine.wire import CallContext, CallReport
from weft_gateway.model import (
    Closing,
    Decision,
    Opening,
    Outcome,
    ProgramKey,
    PromptPrefix,
    ReplicaView,
    RouteRequest,
)
from weft_gateway.model.slo import CallBudget
from weft_gateway.policies.route.prefixes import PrefixAffinityIndex
from weft_gateway.policies.route.registry import ALPHA, BY_COST, build
from weft_gateway.programs.memory import MemoryTable, at_once

from weft_bench.orders.rivals import READINGS
from weft_bench.virtual.clients import EVERYONE, Clients
from weft_bench.virtual.targets import MODEL, Call, Targets, in_microseconds
from weft_bench.workloads.parts import tag_spans
from weft_bench.workloads.schema import Part

# The default of the gateway's setting `health_interval_s`.
HEALTH_INTERVAL_S: Final = 2.0
# About the gateway's step at four bytes a token.
STEP_TOKENS: Final = 512


def prompt_prefix(parts: Sequence[Part]) -> PromptPrefix | None:
    """Return the prefix of a prompt, or None if the prompt is shorter than one step."""
    # Text hashes differ between processes. This is safe because the marks are only looked up, never
    # stored or sorted.
    marks: list[int] = []
    before, missing = 0, STEP_TOKENS
    for part in parts:
        passed = 0
        while part.tokens - passed >= missing:
            before = hash((before, part.name, passed, missing))
            marks.append(before)
            passed += missing
            missing = STEP_TOKENS
        if passed < part.tokens:
            before = hash((before, part.name, passed, part.tokens - passed))
            missing -= part.tokens - passed
    return PromptPrefix(tuple(marks), STEP_TOKENS) if marks else None


LOCALITY_THRESHOLD_TOKENS: Final = 2048


class Front:
    """Places calls and closes them.

    balancer: a router's name; ValueError lists the valid ones. threshold_tokens: calls longer than
    this go to the program's home replica, if the balancer has homes. deadlines: of programs that
    have one, seconds from their first call. alpha: of the balancer `work`. refuse: programs that
    cannot meet their deadline are refused. states: of the engines' answers to
    `GET /weft/state`, the limits and costs, by replica. clients: of programs that state something
    or have a tenant.
    """

    def __init__(
        self,
        replicas: Sequence[str],
        balancer: str,
        rng: Random,
        threshold_tokens: int = LOCALITY_THRESHOLD_TOKENS,
        sent: PrefixAffinityIndex | None = None,
        deadlines: Mapping[str, float] | None = None,
        alpha: float = ALPHA,
        refuse: bool = False,
        states: Mapping[str, Callable[[], Mapping[str, Any]]] | None = None,
        clients: Clients = EVERYONE,
    ) -> None:
        self.table = MemoryTable()
        self._router = READINGS.get(balancer, partial(build, balancer))(threshold_tokens, alpha)
        self._replicas = tuple(replicas)
        self._rng = rng
        self._sent = sent or PrefixAffinityIndex(0)
        self._placed = itertools.count()
        self._keys: dict[str, ProgramKey] = {}
        self._clients = clients
        # Of all calls with one, by call.
        self.budgets: dict[str, CallBudget] = {}
        self._now_s = 0.0
        # Programs that were refused at their first call.
        self.refused: set[str] = set()
        self._refuse = refuse
        self._predicts = balancer in BY_COST or bool(deadlines)
        self._states, self._checked_s = states or {}, -HEALTH_INTERVAL_S
        self._targets = Targets(
            self.table,
            deadlines or {},
            lambda: self._now_s,
            every=self._predicts,
        )

    def begin(self, program: str, now: float) -> None:
        """Start the program's session."""
        at_once(self.table.start(self._key(program), now))

    def place(
        self,
        program: str,
        thread: str,
        call: str,
        prompt_tokens: int,
        now: float,
        *,
        parts: Sequence[Part] = (),
        tags: Sequence[int] | None = None,
        retain_s: float | None = None,
        prefilled: str = "",
    ) -> tuple[str, CallContext]:
        """Route and open a call. Returns its replica and the context for the engine.

        A call of a program that is refused has no open call after it: see `refused`.

        parts: the prompt's content. prefilled: the replica that computed the prompt's prefix ahead
        of the call. Raises RuntimeError if no replica is eligible.
        """
        self._now_s = now
        key = self._key(program)
        in_flight = self.table.in_flight()
        views = tuple(
            [
                ReplicaView(name, frozenset(), True, in_flight.get(name, 0))
                for name in self._replicas
            ]
        )
        row, arrived = self.table.peek(key), self._arrived(key, call, parts)
        question = RouteRequest(MODEL, prompt_tokens, row, views, frozenset(), next(self._placed))
        if self._predicts and parts:
            self._check_engines(now)
            question = self._targets.predicted(arrived, question)
        decision = self._router.route(question, self._rng)
        if not decision.replica:
            raise RuntimeError(f"no replica for {call}: {decision.reason}")
        sticky, prefix = decision.sticky, None
        if prefilled in decision.eligible:
            proposed, sticky = prefilled, False
        else:
            if decision.new_home:
                prefix = prompt_prefix(parts)
                decision = self._choose_home(arrived, question, decision, prefix)
            proposed = decision.replica
        opened = at_once(
            self.table.open_call(
                Opening(
                    key,
                    call,
                    thread,
                    proposed,
                    decision.eligible,
                    sticky,
                    now,
                    ask=arrived.ask if parts else None,
                    costs=in_microseconds(decision.costs),
                )
            )
        )
        self._keys[call] = key
        budget = None
        if parts:
            # A prefill has no budget, and nothing is learned from it.
            self._targets.opened(arrived, opened, decision, prompt_tokens)
            budget = arrived.budget
            if self._refuse and opened.program.calls == 1 and self._targets.infeasible(arrived):
                self.refused.add(program)
                self._close_refused(arrived, now)
        if prefix is not None:
            self._sent.sent(opened.replica, prefix)
        row = opened.program
        context = CallContext(
            call,
            program,
            row.service_s,
            row.waiting_s,
            row.arrival_s,
            row.critical_path_s,
            tags=None if tags is None else tuple(tags),
            retain_s=retain_s,
        )
        if budget is not None:
            self.budgets[call] = budget
            context = replace(
                context,
                budget_s=budget.budget_s,
                cost_s=budget.cost_s or None,
                left_s=budget.left_s,
                path_s=budget.path_s or None,
                deadline_s=budget.deadline_s,
            )
        return opened.replica, self._clients.context(context)

    def _key(self, program: str) -> ProgramKey:
        return ProgramKey(self._clients.of(program).tenant, program)

    def _arrived(self, key: ProgramKey, call: str, parts: Sequence[Part]) -> Call:
        return self._targets.call(key, call, parts)

    def _check_engines(self, now: float) -> None:
        """Read the engines' step costs, as the gateway's health check does."""
        if now < self._checked_s + HEALTH_INTERVAL_S:
            return
        self._checked_s = now
        for name, state in self._states.items():
            self._targets.engine(name, state())

    def _choose_home(
        self,
        call: Call,
        question: RouteRequest,
        decision: Decision,
        prefix: PromptPrefix | None,
    ) -> Decision:
        if prefix is None:
            return decision
        shared = self._sent.shared(prefix, decision.eligible)
        if shared is None:
            return decision
        question = replace(question, shared=shared)
        if self._predicts:
            question = self._targets.predicted(call, question)
        return self._router.route(question, self._rng)

    def close(self, report: CallReport, now: float, outcome: Outcome = Outcome.OK) -> None:
        """Close a call that was answered or stopped."""
        key = self._keys.pop(report.call)
        closing = Closing(
            key,
            report.call,
            now,
            outcome,
            report.service_s,
            report.waiting_s,
            report.prompt_tokens,
            report.cached_tokens,
            report.output_tokens,
            report.preemptions,
        )
        at_once(self.table.close_call(closing))
        self._targets.closed(report, outcome)

    def _close_refused(self, call: Call, now: float) -> None:
        key = self._keys.pop(call.id)
        at_once(self.table.close_call(Closing(key, call.id, now, Outcome.REFUSED)))
        self._targets.refused(call)
        at_once(self.table.end(key, now))

    def end(self, program: str, now: float) -> tuple[str, ...]:
        """End the program's session. Returns the replicas that the gateway notifies."""
        ended = at_once(self.table.end(self._key(program), now))
        if ended is None or ended.threads:
            return ()
        self._targets.ended(ended)
        return ended.replicas

    def violations(self) -> list[str]:
        """Return the violated invariants of a table whose programs have all ended."""
        found = list(at_once(self.table.check()))
        if self._keys or self.table.in_flight():
            found.append(f"calls are open: {sorted(self._keys)[:5]}")
        return [f"process table: {what}" for what in found]


def tags_of(parts: Sequence[Part]) -> list[int] | None:
    """Return the flat list of tags for the engine, or None if a part has no kind."""
    spans = tag_spans(parts)
    return flatten([(end, Tag[tag]) for end, tag in spans]) if spans else None
