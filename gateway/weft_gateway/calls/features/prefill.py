"""Prefills: matches calls with prefills, and prefills predicted turns."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from weft_gateway.calls.call import Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.calls.prefills import PrefillManager
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.model import Outcome
from weft_gateway.overlap.answers import MAX_ANSWER_BYTES
from weft_gateway.overlap.next_turn import NextTurnPredictor
from weft_gateway.programs.identity import Identity
from weft_gateway.programs.lineage.rules import How
from weft_gateway.programs.table import ProcessTable, TableUnavailable
from weft_gateway.telemetry.tasks import Spawner


@dataclass(slots=True, eq=False)
class PrefillObserver(CallObserver):
    """Finds the prefill that a call extends, and computes the time that it saved."""

    prefills: PrefillManager
    table: ProcessTable

    def observes(self, endpoint: Endpoint) -> bool:
        """Only chats have prefills."""
        return endpoint.name == "chat"

    def arrived(self, call: Call) -> Awaitable[None] | None:
        """Match the prefill that the path names, or those of a program that is known to have some.
        Raises ApiError.
        """
        if call.prefill_id:
            return self._extend(call)
        known = self.table.peek(call.identity.key)
        if known is not None and known.attributes:
            return self.prefills.match(call, known)
        return None

    def opened(self, call: Call) -> Awaitable[None] | None:
        """Match prefills that this gateway did not know before the call opened."""
        if not call.program.attributes or call.matched or call.prefill:
            return None
        return self.prefills.match(call, call.program)

    def closed(self, call: Call) -> None:
        """Record the time that the prefill saved, once: later turns use the cache of this one."""
        prefill = call.prefill
        if prefill is None or prefill.used or call.report is None:
            return
        if call.outcome is Outcome.OK:
            prefill.used = True
            call.save("prefill", prefill.saved_s(call.report))

    def ended(self, call: Call) -> Awaitable[None] | None:
        """An answered turn uses up its prefill."""
        return None if call.prefill is None else self.prefills.done(call.prefill, call.key)

    async def _extend(self, call: Call) -> None:
        try:
            prefill = await self.prefills.find(call.caller.tenant, call.prefill_id)
        except TableUnavailable:
            return  # Another gateway may know the handle; the call is served without it.
        call.read_whole()
        await self.prefills.claim(prefill, call.model, call.body)
        call.prefill = prefill
        asked = call.asked
        if call.identity.source == "none" or (asked is not None and asked.verdict.how is How.NEW):
            # Lineage does not know the call's program, but the prefill does.
            call.asked = None
            call.identity = Identity(
                prefill.key, call.identity.thread, "", "prefill", ephemeral=False
            )


@dataclass(slots=True, eq=False)
class AutoPrefill(CallObserver):
    """Learns the sequence of turns, and prefills the next one while the tools run."""

    predictor: NextTurnPredictor
    prefills: PrefillManager
    spawner: Spawner

    def observes(self, endpoint: Endpoint) -> bool:
        """Only chats have prefills."""
        return endpoint.name == "chat"

    def streams(self, call: Call) -> None:
        """Record a stream, to read it after its end."""
        if call.body.get("tools"):
            call.record(MAX_ANSWER_BYTES)

    def ended(self, call: Call) -> None:
        """Learn from the turn, and prefill the next one if this turn called tools."""
        report = call.report
        if report is None or call.outcome is not Outcome.OK or not call.body.get("tools"):
            return
        key, thread = call.key, call.identity.thread
        cached = report.cached_tokens if call.prefill is None else None
        self.predictor.came(key, thread, call.body, cached)
        message = _message(call)
        if not message.get("tool_calls"):
            return
        following = self.predictor.called(
            key,
            thread,
            call.body,
            message,
            report.prompt_tokens + report.output_tokens,
            wanted=bool(call.hints.prefill_next),
        )
        if following is not None:
            body = {**call.body, **following}
            self.spawner.spawn(self.prefills.auto_prefill(call.caller, key, body, call.model))


def _message(call: Call) -> dict[str, Any]:
    """Return the answer's message, {} unless there is exactly one."""
    choices = call.parsed_answer().get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return {}
    message = choices[0].get("message")
    return message if isinstance(message, dict) else {}
