"""Chooses the replica of a call. No other module does.

The router proposes a replica by filters and scorers. The replica of a prefill, of a plan or of the
client's hint takes precedence. For a program without a home, so does a replica that received the
same prompt prefix. The process table makes the final choice in the round trip that opens the call:
the home of a program wins, so that several gateways agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from weft_run.plan.windows import AHEAD

from weft_gateway import errors
from weft_gateway.calls.call import Call, Placed
from weft_gateway.calls.outlook import Outlook
from weft_gateway.engine import media
from weft_gateway.engine.prefixes import prefix_of
from weft_gateway.engine.registry import Registry
from weft_gateway.engine.tokens import Counted, TokenCounter
from weft_gateway.model import Decision, PromptPrefix, RouteRequest
from weft_gateway.policies.route.router import Router
from weft_gateway.policies.tags_sections import (
    Section,
    is_otherwise,
    of_known,
    sections,
    visible,
)
from weft_gateway.programs.identity import place_of
from weft_gateway.programs.table import ProcessTable
from weft_gateway.transcripts.transcript import Known

# Media in a smaller body have as many tokens as text of its size.
_SMALL_BYTES: Final = 4096


class PromptCounter:
    """Counts the tokens of prompts: of whole ones for the router, of their sections for tags."""

    def __init__(self, tokens: TokenCounter, router: Router) -> None:
        self._tokens = tokens
        self._long = router.sticky_above_tokens

    def prompt_tokens(self, call: Call) -> int:
        """Return the length of a call's prompt in tokens.

        A body with fewer bytes than a long prompt has tokens, or without messages that are read, is
        estimated by its size. Otherwise the messages are counted (`weft_gateway.engine.tokens`).
        Media count as media in each case.
        """
        long = self._long
        if long is None or call.skimmed or call.size <= long:
            return self._tokens.estimate(call.model, self.text_bytes(call))
        counted = self.count(call)
        if not counted.ends and is_otherwise(call.body):
            _, counted = self._count(call, visible)
        if counted.ends:
            return counted.tokens
        return self._tokens.estimate(call.model, self.text_bytes(call))

    def text_bytes(self, call: Call) -> int:
        """Return the size of the body, in which media count as text with as many tokens."""
        if not call.text_bytes:
            small = call.size < _SMALL_BYTES
            call.text_bytes = call.size if small else media.text_bytes(call.raw)
        return call.text_bytes

    def count(self, call: Call) -> Counted:
        """Count the call's prompt, once. Without sections if the prompt is not in the body."""
        if call.counted is None:
            call.sections, call.counted = self._count(call, sections)
        return call.counted

    def _count(
        self, call: Call, split: Callable[[Mapping[str, Any]], list[Section | Known]]
    ) -> tuple[list[Section], Counted]:
        found = split(call.body)
        counted = self._tokens.count(call.model, found)
        if counted is None:
            # Other tools, or another system prompt: what is known counts from another place.
            call.read_whole()
            found = split(call.body)
            counted = self._tokens.count(call.model, found)
            assert counted is not None
        flat: list[Section] = []
        for each in found:
            flat += of_known(each) if isinstance(each, Known) else (each,)
        return flat, counted

    def learn(self, call: Call, prompt_tokens: int) -> None:
        """Learn from the engine's token count of the call's prompt."""
        if size := _raw_prompt_bytes(call):
            self._tokens.learn_text(call.model, size, prompt_tokens)
        counted = counted_alone(call)
        if counted is not None:
            self._tokens.learn(counted, prompt_tokens)


def counted_alone(call: Call) -> Counted | None:
    """Return the counted prompt if the engine counts it once: engines count it for each of several
    answers.
    """
    return call.counted if call.body.get("n") in (None, 1) else None


@dataclass(slots=True, eq=False)
class Placement:
    """Proposes a replica for each call. outlook: predicts costs, if they are used."""

    router: Router
    registry: Registry
    table: ProcessTable
    counter: PromptCounter
    outlook: Outlook | None = None
    _rng: Random = field(default_factory=Random, init=False)
    _ordinals: Iterator[int] = field(default_factory=itertools.count, init=False)

    def place(self, call: Call, avoid: frozenset[str] = frozenset()) -> Placed:
        """Propose a replica. avoid: replicas that this call has just failed to reach. Raises
        ApiError if no replica can take the call.
        """
        tokens = self.counter.prompt_tokens(call)
        registry, in_flight = self.registry, self.table.in_flight()
        # By position: keywords would double the cost of each record.
        question = RouteRequest(
            call.model,
            tokens,
            self.table.peek(call.identity.key),
            registry.views(in_flight),
            avoid,
            next(self._ordinals),
        )
        if self.outlook is not None:
            question = self.outlook.predicted(call, question)
        decision = self.router.route(question, self._rng)
        if not decision.replica:
            question = replace(question, replicas=registry.last_resort(in_flight))
            if self.outlook is not None:
                question = self.outlook.predicted(call, question)
            decision = self.router.route(question, self._rng)
            if not decision.replica:
                raise errors.of("no_replica")
        if call.prefill is not None and call.prefill.replica in decision.eligible:
            # Its KV is there, regardless of the program's home.
            return Placed(
                call.prefill.replica, False, decision, tokens, "its prefill is there", None
            )
        plan = call.plan
        if plan is not None and plan.replica in decision.eligible:
            return Placed(plan.replica, False, decision, tokens, "planned there", None)
        asked = call.hints.replica
        if asked in decision.eligible and not self._full(asked, decision.eligible, in_flight):
            return Placed(asked, False, decision, tokens, "the client asks for it", None)
        prefix = None
        if decision.new_home and call.endpoint.is_text:
            decision, prefix = self._home(call, question, decision)
        return Placed(decision.replica, decision.sticky, decision, tokens, "", prefix)

    def _full(self, asked: str, eligible: frozenset[str], in_flight: Mapping[str, int]) -> bool:
        """Whether a replica has all calls that a planned run would give it, while another one has
        free slots: the calls of other clients would wait for a hint. False for unknown slots.
        """

        def over(name: str, most: float) -> bool:
            replica = self.registry.get(name)
            slots = 0 if replica is None else replica.slots
            return slots > 0 and in_flight.get(name, 0) >= most * slots

        return over(asked, AHEAD) and not all(over(name, 1.0) for name in eligible)

    def _home(
        self, call: Call, question: RouteRequest, decision: Decision
    ) -> tuple[Decision, PromptPrefix | None]:
        """Decide again for a call that gives its program a home, with the replicas that hold the
        prompt's prefix. Returns the decision and the prefix. If the prompt is not read, a name for
        placement (`weft_gateway.programs.aliases`) stands for a prefix as long as the threshold.
        """
        above = self.router.sticky_above_tokens
        if call.skimmed and above is not None:
            name = place_of(call.headers, call.body)
            mark = hash((call.caller.tenant, call.model, name))
            prefix = PromptPrefix((mark,), max(1, above)) if name else None
        else:
            per_token = self.counter.text_bytes(call) / question.prompt_tokens
            prefix = prefix_of(call.body, call.model, call.caller.salt, per_token)
        if prefix is not None:
            shared = self.registry.prefixes.shared(prefix, decision.eligible)
            if shared is not None:
                question = replace(question, shared=shared)
                if self.outlook is not None:
                    question = self.outlook.predicted(call, question)
                decision = self.router.route(question, self._rng)
        return decision, prefix


def refusal(placed: Placed, asked: str) -> str:
    """Return why a call does not run on the replica that its client has named."""
    rejected = placed.decision.rejected.get(asked)
    if rejected is not None:
        return f"the replica cannot take the call ({rejected})"
    if asked not in placed.decision.eligible:
        return "no replica has this name"
    return placed.reason or "the replica is full, and another one has free slots"


def _raw_prompt_bytes(call: Call) -> int:
    """Return the bytes of a call with a raw text prompt, from which the bytes per token are
    learned. 0 for other calls.
    """
    body: Mapping[str, Any] = call.body
    if "messages" in body:
        return 0
    prompt = body.get("prompt") or body.get("input")
    if isinstance(prompt, list):
        prompt = prompt[0] if prompt else None
    if not isinstance(prompt, str | int | list) or is_otherwise(body):
        return 0
    return call.size
