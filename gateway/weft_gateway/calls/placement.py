"""Which replica gets a call. Nothing else decides it.

The router proposes by filters and scorers. A prefill's replica, and for a program without a home
the replica that was sent the same prompt prefix, come before its proposal. The process table then
settles it, in the round trip that opens the call: the home of a program wins, so that several
gateways agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from time import time
from typing import Any

from weft_gateway import errors
from weft_gateway.calls.call import Call, Placed
from weft_gateway.engine.estimate import PromptEstimator
from weft_gateway.engine.prefixes import prefix_of
from weft_gateway.engine.registry import Registry
from weft_gateway.engine.tokens import Counted, TokenCounter
from weft_gateway.errors import ApiError
from weft_gateway.model import Decision, PromptPrefix, RouteRequest
from weft_gateway.policies.route.registry import Router
from weft_gateway.policies.tags_sections import is_otherwise, sections, visible
from weft_gateway.programs.table import ProcessTable


class PromptCounter:
    """Tokens of prompts: of whole ones for the router, of their sections for tags."""

    def __init__(self, tokens: TokenCounter, estimator: PromptEstimator, router: Router) -> None:
        self._tokens = tokens
        self._estimator = estimator
        self._long = router.sticky_above_tokens

    def prompt_tokens(self, call: Call) -> int:
        """How long a call's prompt is, tokens.

        A body of fewer bytes than a long prompt has tokens is not looked into. Otherwise the
        messages are counted (`weft_gateway.engine.tokens`), without pictures; only prompts without
        messages are estimated by the bytes that such prompts have had for each token.
        """
        size, long = len(call.raw), self._long
        if long is None or size <= long:
            return self._estimator.estimate(call.model, size)
        counted = self.count(call)
        if not counted.ends and is_otherwise(call.body):
            counted = self._tokens.count(call.model, visible(call.body))
        return counted.tokens if counted.ends else self._estimator.estimate(call.model, size)

    def count(self, call: Call) -> Counted:
        """The call's prompt, counted once. Without sections where it is not in the body."""
        if call.counted is None:
            call.sections = sections(call.body)
            call.counted = self._tokens.count(call.model, call.sections)
        return call.counted

    def learn(self, call: Call, prompt_tokens: int) -> None:
        """The engine has counted the call's prompt."""
        self._estimator.learn(call.model, _raw_prompt_bytes(call), prompt_tokens)
        counted = counted_alone(call)
        if counted is not None:
            self._tokens.learn(counted, prompt_tokens)


def counted_alone(call: Call) -> Counted | None:
    """The counted prompt, where the engine counts it once: it does so for each of its answers."""
    return call.counted if call.body.get("n") in (None, 1) else None


class Placement:
    """Proposes a replica for each call."""

    def __init__(
        self,
        router: Router,
        registry: Registry,
        table: ProcessTable,
        counter: PromptCounter,
        retry_after_s: int,
        rng: Random | None = None,
    ) -> None:
        """retry_after_s: for clients whose call no replica can take."""
        self._router = router
        self._registry = registry
        self._table = table
        self._counter = counter
        self._retry_after_s = retry_after_s
        self._rng = rng or Random()
        self._ordinals = itertools.count()

    def place(self, call: Call, avoid: frozenset[str] = frozenset()) -> Placed:
        """avoid: replicas that this call has just failed to reach. ApiError where no replica can
        take the call."""
        now = time()
        tokens = self._counter.prompt_tokens(call)
        registry, in_flight = self._registry, self._table.in_flight()
        # Records by position here: names would double what each costs.
        question = RouteRequest(
            call.model,
            tokens,
            self._table.peek(call.identity.key),
            registry.views(in_flight),
            avoid,
            next(self._ordinals),
            call.holder,
        )
        decision = self._router.route(question, now, self._rng)
        if not decision.replica:
            question = replace(question, replicas=registry.last_resort(in_flight))
            decision = self._router.route(question, now, self._rng)
            if not decision.replica:
                raise self._nowhere(call)
        if call.prefill is not None and call.prefill.replica in decision.eligible:
            # Its KV is there, wherever the program's home is.
            return Placed(
                call.prefill.replica, False, decision, tokens, "its prefill is there", None
            )
        prefix = None
        if decision.new_home and call.endpoint.spoken and not call.skimmed:
            decision, prefix = self._home(call, question, decision, now)
        return Placed(decision.replica, decision.sticky, decision, tokens, "", prefix)

    def settled(self, prefix: PromptPrefix, replica: str) -> None:
        """The process table has sent a call whose prompt begins so to `replica`."""
        self._registry.prefixes.sent(replica, prefix)

    def _home(
        self, call: Call, question: RouteRequest, decision: Decision, now: float
    ) -> tuple[Decision, PromptPrefix | None]:
        """The decision again for a call that gives its program a home, with the replicas in mind
        that hold what its prompt begins with; and that prefix."""
        per_token = len(call.raw) / question.prompt_tokens
        prefix = prefix_of(call.body, call.model, call.caller.salt, per_token)
        if prefix is not None:
            shared = self._registry.prefixes.shared(prefix, decision.eligible)
            if shared is not None:
                decision = self._router.route(replace(question, shared=shared), now, self._rng)
        return decision, prefix

    def _nowhere(self, call: Call) -> ApiError:
        """No replica can take the call. An answer that it continues is lost with its replica,
        unless that replica may only be late."""
        holder = self._registry.get(call.holder)
        if call.holder and (holder is None or holder.circuit.alive or holder.circuit.dead):
            return errors.previous_response_not_found(call.body["previous_response_id"], 404)
        return errors.no_replica(self._retry_after_s)


def _raw_prompt_bytes(call: Call) -> int:
    """The bytes of a call whose prompt is raw text: they tell how many bytes a token takes. 0 for
    any other call."""
    body: Mapping[str, Any] = call.body
    if "messages" in body:
        return 0
    prompt = body.get("prompt") or body.get("input")
    if isinstance(prompt, list):
        prompt = prompt[0] if prompt else None
    if not isinstance(prompt, str | int | list) or is_otherwise(body):
        return 0
    return len(call.raw)
