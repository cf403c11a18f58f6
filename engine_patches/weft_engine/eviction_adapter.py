"""Connects the eviction policy to one scheduler: hints of calls, commands over HTTP, vLLM's
blocks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from weft_engine.block_metadata import AGES, HIGHEST_PRIORITY, LOWEST_PRIORITY
from weft_engine.compat import SchedulerHooks
from weft_engine.compat_kv import contents_of
from weft_engine.eviction_ledger import EvictionLedger
from weft_engine.eviction_policy import EvictionPolicy
from weft_engine.kv_command import KvCommand
from weft_engine.tags import TagSpans
from weft_engine.wire import (
    XARG_PRIORITY,
    XARG_RETAIN,
    XARG_TAGS,
    CallContext,
)

MAX_RETAIN_S: Final = 3600.0
_OFF: Final = "ignored: the engine does not evict by tag"


def told(context: CallContext) -> list[str]:
    """Return the outcome of a call's cache hints in an engine that does not evict by tag."""
    given = {
        XARG_TAGS: context.tags,
        XARG_RETAIN: context.retain_s,
        XARG_PRIORITY: context.priority,
    }
    return [f"{name}={_OFF}" for name, value in given.items() if value is not None]


class EvictionAdapter:
    """A scheduler's priority queue of free blocks, its eviction policy, and what was evicted."""

    def __init__(self, scheduler: SchedulerHooks) -> None:
        self._blocks = blocks = scheduler.kv_blocks()
        self._block_sizes = scheduler.block_sizes()
        self.ledger = EvictionLedger(len(blocks))
        self.policy = EvictionPolicy(
            len(blocks),
            scheduler.settings.pin_share,
            blocks.__getitem__,
            lambda moved: self._queue.retier_n(moved),
            contents_of,
            lambda: self._queue.reused,
        )
        self._queue = scheduler.tier_free_blocks(
            self.policy.homes,
            self._reused,
            self.policy.shares.weight,
            AGES * len(blocks),
        )

    def take(self, context: CallContext, prompt_tokens: int) -> list[str]:
        """Apply a call's hints on arrival. Returns the outcome of each, and why the last pin of the
        program ended if it was not released."""
        hints = []
        self.policy.called(context.program, context.tenant, context.weight)
        ended = self.policy.take_end(context.program)
        if ended:
            hints.append(f"{XARG_RETAIN}=expired: {ended}")
        if context.tags is not None:
            try:
                beyond = TagSpans.parse(context.tags).ends[-1] > prompt_tokens
                cut = f", cut at the prompt's {prompt_tokens} tokens" if beyond else ""
                hints.append(f"{XARG_TAGS}=applied{cut}")
            except ValueError as error:
                hints.append(f"{XARG_TAGS}=ignored: {error}")
        if context.retain_s is not None and not self.policy.pins.limit:
            hints.append(f"{XARG_RETAIN}=ignored: pin_share leaves no block to pin")
        elif context.retain_s is not None:
            reach = context.retain_tokens
            part = "" if reach is None else f" to the first {reach} tokens"
            cut = " for one hour, the maximum" if context.retain_s > MAX_RETAIN_S else ""
            hints.append(f"{XARG_RETAIN}=applied{part}{cut}")
        if context.priority is not None:
            inside = LOWEST_PRIORITY <= context.priority <= HIGHEST_PRIORITY
            hints.append(f"{XARG_PRIORITY}=applied{'' if inside else ', clamped'}")
        return hints

    def note(
        self,
        context: CallContext,
        groups: Sequence[Sequence[Any]],
        now: float,
        *,
        prompt_tokens: int,
        ended: bool,
    ) -> list[str]:
        """Record the metadata of a call's blocks before the sequence frees them. ended: the call
        has finished; False: it was preempted. Returns further outcomes of its hints."""
        self.policy.called(context.program, context.tenant, context.weight)
        spans = TagSpans()
        if context.tags is not None:
            # Errors in the tags were reported when the call arrived.
            with suppress(ValueError):
                spans = TagSpans.parse(context.tags).within(prompt_tokens)
        if context.priority is not None:
            # A call's priority is permanent and replaces one that expires.
            self.policy.prioritise(context.program, context.priority)
        noted: list[int] = []
        for blocks, size in zip(groups, self._block_sizes, strict=True):
            noted += self.policy.note(
                context.program, spans, blocks, size, ended=ended, tenant=context.tenant
            )
        if not context.retain_s or not self.policy.pins.limit:
            return []
        self._retain(context.program, context.retain_s, now, context.retain_tokens)
        wanted = self.policy.reached(context.program, noted)
        pinned = sum(map(self.policy.pins.holds, wanted))
        if pinned == len(wanted):
            return []
        return [f"{XARG_RETAIN}=applied to {pinned} of {len(wanted)} blocks: pin_share is used up"]

    def obey(self, command: KvCommand, now: float) -> None:
        """Execute a command of `POST /weft/kv`."""
        if command.action == "retain":
            self._retain(command.program, command.ttl_s, now, command.tokens)
        elif command.action == "release":
            self.policy.release(command.program)
        elif command.action == "give_up":
            self.policy.give_up(command.program)
        elif command.action == "forget":
            self.policy.forget(command.program)
        elif command.action == "priority":
            ends = command.priority and command.ttl_s
            until = now + min(command.ttl_s, MAX_RETAIN_S) if ends else None
            self.policy.prioritise(command.program, command.priority, until)

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        return self.policy.violations() + self._queue.violations(self._blocks)

    def _reused(self, blocks: Sequence[Any]) -> None:
        self.ledger.taken([block.block_id for block in blocks], contents_of(blocks))
        self.policy.reused(blocks)

    def _retain(self, program: str, ttl_s: float, now: float, reach: int | None) -> None:
        self.policy.retain(program, now + min(ttl_s, MAX_RETAIN_S), reach)
