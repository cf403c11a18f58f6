"""Sends calls to engines: builds the scheduling context, the body and the head of the request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Any, Final

import httpx
from weft_engine.wire import CALL_HEADER, CallContext, CallReport

from weft_gateway.calls.budgets import Budgets
from weft_gateway.calls.call import Call
from weft_gateway.calls.observers import notify
from weft_gateway.calls.placement import PromptCounter, refusal
from weft_gateway.calls.turns import LIGHT_BYTES, Turns
from weft_gateway.engine.engine_request import (
    CONTEXT_HEADER,
    ReplicaKind,
    build_engine_request,
    program_digest,
    tenant_digest,
)
from weft_gateway.engine.errors import (
    ReplicaError,
    ReplicaFault,
    ReplicaTimeout,
    ReplicaWrongCall,
    Withdrawn,
)
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.headers import for_engine
from weft_gateway.engine.pool import Exchange
from weft_gateway.engine.registry import Registry
from weft_gateway.engine.sse import read_report
from weft_gateway.model.hint import OwnTag
from weft_gateway.model.slo import NO_GOAL, Scope
from weft_gateway.overlap import tag_codec
from weft_gateway.policies.hints import UP_TO_MARK, WHOLE, with_replica_fate
from weft_gateway.policies.repairs import repaired
from weft_gateway.policies.tags import end_of, wire_tags
from weft_gateway.tenants import Tenants

_CALL_FIELD: Final = CALL_HEADER.encode()
_CONTEXT_FIELD: Final = CONTEXT_HEADER.encode()
_REPORT_WITHIN_S: Final = 1.0
# Time between two requests for a report. Each takes about a millisecond of the event loop, and many
# clients can disconnect at once.
_ASK_EVERY_S: Final = 0.004
_MAX_REPORT_BYTES: Final = 65_536


@dataclass(slots=True, eq=False)
class Engines:
    """Sends calls to their replicas. repairs: the rules for their prompts."""

    registry: Registry
    client: EngineClient
    counter: PromptCounter
    tenants: Tenants
    turns: Turns
    budgets: Budgets
    tag_prompts: bool
    repairs: tuple[str, ...] = ()
    _last_ask_s: float = field(default=0.0, init=False)

    def turn(self, call: Call, size: int) -> Awaitable[None]:
        """Return an awaitable to await before processing `size` bytes of the call's answer."""
        return self.turns.take(call.caller.tenant, size)

    def exchange(self, call: Call) -> Exchange:
        """Create the exchange of an open call. The caller must close it."""
        return Exchange(self.registry[call.replica].upstream)

    async def send(self, call: Call, exchange: Exchange) -> None:
        """Send an open call, and wait for the head of the answer. Raises ReplicaError
        (ConnectFailed if no byte was sent), TooDeep, UnsafeHead.
        """
        if call.size > LIGHT_BYTES:
            await self.turns.take(call.caller.tenant, call.size)
        replica = self.registry[call.replica]
        weft = replica.kind is ReplicaKind.WEFT
        call.context = context = self.scheduling_context(call, weft=weft)
        body, carried = build_engine_request(
            call.raw,
            call.body,
            call.endpoint,
            replica.kind,
            context,
            call.caller.salt,
            call.reading,
        )
        if self.repairs and call.endpoint.is_text and not call.skimmed:
            # Only the engine gets this body: lineage compares what the client sends.
            whole, call.repairs = repaired(b"".join(body), self.repairs)
            body = (whole,)
        name = call.id.encode()
        fields = for_engine(call.headers)
        # The call's id instead of the client's: it is unique within an engine.
        fields.append((b"x-request-id", name))
        # An engine reports on a call only if its body contains the call's context.
        if weft:
            fields.append((_CALL_FIELD, name))
        if carried:
            fields.append((_CONTEXT_FIELD, carried))
        head = replica.request_head("POST", call.target, fields, sum(map(len, body)))
        call.overhead_s = perf_counter() - call.begun - call.memory_wait_s - call.held_s
        notify(call.hooks.sending, call)
        await exchange.start(head, *body)
        # No other replica gets the call now.
        call.raw = b""
        if call.skimmed and call.held is not None:
            call.held.take(len(call.items))

    def answered(self, call: Call) -> None:
        """The answer is complete. A replica is not at fault for an unimplemented endpoint (501)."""
        if call.status < 500 or call.status == 501:
            self.registry.succeeded(call.replica, call.caller.tenant)
            if call.status == 404:
                self.registry.doubt(call.replica)
        else:
            fault = ReplicaFault(f"The replica answered {call.status}.")
            self.registry.failed(call.replica, fault, call.caller.tenant)

    def failed(self, call: Call, error: ReplicaError) -> None:
        """Record that the replica has failed the call, unless the client caused the error."""
        if error.status < 500 and not isinstance(error, Withdrawn):
            self.registry.succeeded(call.replica, call.caller.tenant)
        else:
            self.registry.failed(call.replica, error, call.caller.tenant)

    def broke_off(self, call: Call, error: ReplicaError) -> None:
        """The answer broke off after the client had received all of it."""
        self.registry.succeeded(call.replica, call.caller.tenant)
        if not isinstance(error, ReplicaTimeout):
            self.registry.suspicion.set()

    async def ask_report(self, call: Call) -> CallReport | None:
        """Request the report on a call whose answer had none. None if it does not arrive within a
        second of the request. Requests of many calls are sent one after another.
        """
        replica = self.registry[call.replica]
        if replica.kind is not ReplicaKind.WEFT:
            return None
        now_s = asyncio.get_running_loop().time()
        self._last_ask_s = max(self._last_ask_s + _ASK_EVERY_S, now_s)
        if self._last_ask_s > now_s:
            await asyncio.sleep(self._last_ask_s - now_s)
        path = f"/weft/calls/{call.id}"
        try:
            answer = await self.client.fetch(replica, path, _REPORT_WITHIN_S, _MAX_REPORT_BYTES)
            return read_report(answer.body, call.id) if answer.status == 200 else None
        except (httpx.HTTPError, ReplicaWrongCall):
            return None

    def scheduling_context(self, call: Call, *, weft: bool) -> CallContext | None:
        """Build the scheduling context for an engine with the plugin: the program's usage, the
        prompt's tags, its hints. None for other engines. Always sets the hints' fates.
        """
        program, hints = call.program, call.hints
        tags, retain_tokens, fates = call.tags, None, hints.fates
        if tags is None and weft and call.endpoint.xargs and self._tags(call):
            own = hints.tags or (_earlier_tags(call) if program.attributes else ())
            known = call.known
            if known is not None and any(
                tag.message is not None and tag.message < known.last for tag in own
            ):
                call.read_whole()
                call.counted = known = None
            ends = self.counter.count(call).ends
            tags, of_tags = wire_tags(call.sections, ends, own)
            fates += of_tags
            if hints.retain_to is not None:
                if known is not None and known.first <= hints.retain_to < known.last:
                    retain_tokens = known.end_of(hints.retain_to)
                else:
                    retain_tokens = end_of(hints.retain_to, call.sections, ends)
        elif hints.tags:
            fates += tuple(f"{tag.name}=ignored: prompts are not tagged here" for tag in hints.tags)
        if hints.retain_to is not None and retain_tokens is None:
            fates = tuple([fate.replace(UP_TO_MARK, WHOLE) for fate in fates])
        if hints.replica is not None and call.placed is not None:
            why = refusal(call.placed, hints.replica)
            fates = with_replica_fate(fates, call.replica == hints.replica, why)
        call.fates = fates
        call.expected_s = None
        if program.calls_closed:
            call.expected_s = program.service_s / program.calls_closed
        call.budget = budget = None
        if program.goal is not NO_GOAL or hints.deadline_s is not None:
            call.budget = budget = self.budgets.of(call)
        if not weft:
            return None
        service_s, path_s = program.service_s, program.critical_path_s
        if call.plan is not None:
            # Otherwise a long program would come first until it has used much service.
            service_s, path_s = (
                max(service_s, call.plan.service_s),
                max(path_s, call.plan.service_s),
            )
        if hints.priority:
            # Each step up halves the program's recorded usage, about one queue level: the call runs
            # earlier, but never permanently before all others.
            share = 2.0**-hints.priority
            service_s, path_s = service_s * share, path_s * share
        tenant = call.identity.key.tenant
        # Building it twice would cost each call with a target several microseconds.
        target: dict[str, Any] = {}
        if budget is not None:
            target = {
                "budget_s": budget.budget_s,
                "cost_s": budget.cost_s or None,
                "left_s": budget.left_s,
                "path_s": budget.path_s or None,
                # From the program's arrival: engines rank all its calls by it.
                "deadline_s": budget.deadline_s
                if budget.scope is Scope.PROGRAM
                else max(0.0, budget.target_s - program.arrival_s),
            }
        return CallContext(
            call.id,
            program_digest(call.identity.key),
            service_s,
            program.waiting_s,
            program.arrival_s,
            path_s,
            tags=tags,
            retain_s=hints.retain_s,
            priority=hints.reuse_priority,
            retain_tokens=retain_tokens,
            tenant=tenant_digest(tenant),
            weight=self.tenants.of(tenant).weight,
            **target,
        )

    def _tags(self, call: Call) -> bool:
        """Whether to send the prompt's tags: not if the settings, or the client with an empty list,
        disable them.
        """
        own = call.body.get("weft")
        return self.tag_prompts and not (isinstance(own, dict) and own.get("tags") == [])


def _earlier_tags(call: Call) -> tuple[OwnTag, ...]:
    """Return the tags that were set for the program before, through any gateway."""
    text = call.program.attribute(tag_codec.TAGS, time())
    return tag_codec.decode(text) if text else ()
