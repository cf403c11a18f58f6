"""Says where the tokens of each prompt came from: the engine's counts beside the program's earlier
prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time
from typing import Final

from weft_engine.wire import CallReport

from weft_gateway.calls.budgets import Budgets
from weft_gateway.calls.call import NOTHING_FOUND, Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.engine.engine_request import ReplicaKind, program_digest
from weft_gateway.engine.registry import Registry
from weft_gateway.policies.misses import Cause, Counts, Earlier, split
from weft_gateway.policies.tags_sections import is_otherwise
from weft_gateway.programs.prompts import Prompt, Prompts
from weft_gateway.telemetry.prompts import Sources
from weft_gateway.transcripts.outline import sketch

# Of a hint of the engine (`EvictionAdapter.take`).
_UNKNOWN: Final = "the engine knows it no more"
_RETENTION_ENDED: Final = "weft_retain=expired"


@dataclass(slots=True, eq=False)
class PromptObserver(CallObserver):
    """Compares each prompt with the program's earlier ones. counts: replicas without the plugin
    that report cached tokens.
    """

    prompts: Prompts
    registry: Registry
    budgets: Budgets
    _counts: set[str] = field(default_factory=set)

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe all prompts, those of prefills too."""
        return endpoint.is_text

    def sending(self, call: Call) -> None:
        """Compare the prompt with the program's earlier ones, while its bytes are here."""
        call.sketch, call.found = None, NOTHING_FOUND
        if call.skimmed or is_otherwise(call.body):
            return
        replica = self.registry.get(call.replica)
        vllm = replica is not None and replica.kind is not ReplicaKind.STOCK
        own = call.body.get("cache_salt")
        salt = hash((call.caller.salt, own if isinstance(own, str) else ""))
        raw, body = call.raw, call.body
        call.sketch = sketch(raw, body, call.reading, call.model, salt, vllm=vllm)
        if call.sketch is not None:
            call.found = self.prompts.find(call.key, call.sketch, raw, body)

    def closed(self, call: Call) -> None:
        """Split the prompt as the engine has counted it, and keep it for the next one."""
        usage = call.usage
        if usage is None or not usage.prompt_tokens:
            return
        report = call.report
        if report is None:
            if usage.cached_tokens:
                self._counts.add(call.replica)
            elif call.replica not in self._counts:
                # An engine that does not report cached tokens.
                return
        call.sources = self._sources(call, usage.prompt_tokens, usage.cached_tokens, report)
        if call.sketch is not None and not call.identity.ephemeral:
            # Engines count the prompt for each answer.
            tokens = usage.prompt_tokens / _answers(call)
            call.sketch.measure(tokens, call.found.base, call.found.common)
            prompt = Prompt(call.sketch.outline, call.replica, time())
            self.prompts.keep(call.key, program_digest(call.key), call.found, prompt)
        call.sketch, call.found = None, NOTHING_FOUND

    def _sources(self, call: Call, prompt: int, cached: int, report: CallReport | None) -> Sources:
        found, answers = call.found, _answers(call)
        before, own, change = found.before, call.sketch, found.change
        common, length = found.reach
        # Without reports of evictions, they are the usual cause.
        lost, expired = Cause.EVICTED if report is None else Cause.EXPIRED, ""
        if before is not None and own is not None:
            if before.outline.salt != own.outline.salt:
                lost = Cause.SALT
            elif before.replica != call.replica:
                lost = Cause.MOVED
            expired = _expired(before, report)
            if lost is Cause.EXPIRED and not expired and found.billing is not None:
                # Nothing else explains the loss: the engine sees the line.
                common, change = 0.0, found.billing
        counts = Counts(prompt, cached)
        if report is not None:
            counts = Counts(
                prompt, cached - report.loaded_tokens, report.loaded_tokens, report.evicted_tokens
            )
        ended = before is not None and lost is Cause.EXPIRED and _was_given_up(before, report)
        exact = change is None
        earlier = Earlier(common * answers, length * answers, lost, ended, exact)
        sources = Sources(split(counts, earlier))
        again = sources.split.again
        if not again:
            return sources
        sources.token_s = (self.budgets.costs.speed(call.replica) or (None,))[0]
        if change is not None:
            sources.change = change
        if before is not None:
            sources.before, sources.expired = before.replica, expired or _UNKNOWN
        if Cause.MOVED in again:
            sources.moved = _moved(call, sources.before)
        if report is not None and report.evicted_tokens:
            sources.evicted_s = report.evicted_s
            by = self.prompts.name(report.evicted_by)
            if by is not None:
                sources.evicted_by = by.program if by.tenant == call.key.tenant else ""
        return sources


def _answers(call: Call) -> int:
    """Return how often the engine counts the prompt."""
    wanted = call.body.get("n")
    return wanted if type(wanted) is int and wanted > 0 else 1


def _moved(call: Call, before: str) -> str:
    """Return why a call did not run where its prompt had been computed."""
    placed = call.placed
    if any(name == before for name, _ in call.failed):
        return "the replica could not be reached"
    if placed is None:
        return ""
    rejected = placed.decision.rejected.get(before)
    if rejected is not None:
        return f"the replica cannot take the call ({rejected})"
    if placed.reason or placed.decision.replica == call.replica:
        return placed.reason or placed.decision.reason
    return "home of its program"


def _was_given_up(before: Prompt, report: CallReport | None) -> bool:
    """Whether the engine had been told, or had promised, to keep the prompt no longer."""
    hints = () if report is None else report.hints
    return before.ended or any(hint.startswith(_RETENTION_ENDED) for hint in hints)


def _expired(before: Prompt, report: CallReport | None) -> str:
    """Return why an engine lost a prompt that no program evicted, "" if unknown."""
    if before.ended:
        return "the session had ended, idle for too long"
    if _was_given_up(before, report):
        return "its retention had ended"
    if report is not None and 0 < report.emptied_s <= time() - before.at:
        return f"the cache was emptied {report.emptied_s:.0f} s before"
    return ""
