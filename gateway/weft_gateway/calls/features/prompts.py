"""Says where the tokens of each prompt came from: the engine's counts beside the program's earlier
prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time
from typing import Any, Final

from weft_engine.wire import CallReport

from weft_gateway.calls.budgets import Budgets
from weft_gateway.calls.call import Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.engine.engine_request import program_digest
from weft_gateway.policies.misses import Cause, split
from weft_gateway.policies.repairs import BY_KIND
from weft_gateway.policies.tags_sections import is_otherwise
from weft_gateway.programs.prompts import Prompts
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.prompts import described
from weft_gateway.transcripts.outline import Change, Outline, outline

# Of a hint of the engine (`EvictionAdapter.take`).
_RETENTION_ENDED: Final = "weft_retain=expired"


@dataclass(slots=True, eq=False)
class PromptObserver(CallObserver):
    """Compares each prompt with the program's earlier ones. counts: replicas without the plugin
    that report cached tokens.
    """

    prompts: Prompts
    budgets: Budgets
    metrics: Metrics
    _counts: set[str] = field(default_factory=set)

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe all prompts, those of prefills too."""
        return endpoint.is_text

    def sending(self, call: Call) -> None:
        """Compare the prompt with the program's earlier ones, while its bytes are here."""
        call.found = None
        if call.skimmed or is_otherwise(call.body):
            return
        own = call.body.get("cache_salt")
        salt = hash((call.caller.salt, own if isinstance(own, str) else ""))
        prompt = outline(call.raw, call.body, call.reading, call.model, salt)
        if prompt is not None:
            prompt.call = call.id
            call.found = self.prompts.find(call.key, prompt, call.raw, call.body)

    def closed(self, call: Call) -> None:
        """Split the prompt as the engine has counted it, and keep it for the next one."""
        usage, report = call.usage, call.report
        if usage is None or not usage.prompt_tokens:
            return
        if report is None:
            if usage.cached_tokens:
                self._counts.add(call.replica)
            elif call.replica not in self._counts:
                # An engine that does not report cached tokens.
                return
        # Engines count the prompt for each answer.
        wanted = call.body.get("n")
        answers = wanted if type(wanted) is int and wanted > 0 else 1
        self._explain(call, usage.prompt_tokens, usage.cached_tokens, answers)
        if call.found is not None and not call.identity.ephemeral:
            digest, tokens = program_digest(call.key), usage.prompt_tokens / answers
            self.prompts.keep(call.key, digest, call.found, tokens, call.replica, time())
        call.found = None

    def _explain(self, call: Call, prompt: int, cached: int, answers: int) -> None:
        found, report = call.found, call.report
        before = None if found is None else found.before
        loaded = evicted = 0
        # Without reports of evictions, they are the usual cause.
        lost = Cause.EVICTED
        if report is not None:
            loaded, evicted, lost = report.loaded_tokens, report.evicted_tokens, Cause.EXPIRED
        reach, change, expired, ended = (0.0, 0.0), None, "", False
        if found is not None and before is not None:
            reach, change = found.reach, found.change
            if before.salt != found.own.salt:
                lost = Cause.SALT
            elif before.replica != call.replica:
                lost = Cause.MOVED
            else:
                expired, ended = _expired(before, report)
                head = before.ends[0] * answers
                if found.billed and not expired and cached + evicted <= head:
                    # Nothing else explains the loss of the head: the engine sees the line.
                    reach, change = (0.0, reach[1]), Change("billing line", "system")
        sources = split(
            prompt,
            cached - loaded,
            loaded,
            evicted,
            reach=(reach[0] * answers, reach[1] * answers),
            lost=lost,
            ended=ended,
            exact=change is None,
        )
        about: dict[Cause, tuple[str, dict[str, Any]]] = {}
        for cause in sources.again:
            if cause is Cause.CHANGED and change is not None:
                text = f"changed at {change.path}, byte {change.byte}: {change.kind}"
                if not change.path:
                    text = f"changed: {change.kind}"
                rule = BY_KIND.get(change.kind)
                if rule is not None and rule not in call.repairs:
                    text += f"; repair: {rule}"
                about[cause] = text, change._asdict() | {"path": change.path or None}
            elif cause is Cause.MOVED and before is not None:
                why = _moved(call, before.replica)
                details = {"from": before.replica, "why": why}
                about[cause] = f"moved from {before.replica}: {why}", details
            elif cause is Cause.EVICTED:
                about[cause] = self._evicted(call, report)
            elif cause is Cause.EXPIRED:
                why = expired or "the engine knows it no more"
                about[cause] = f"expired: {why}", {"why": why}
            else:
                about[cause] = "another cache salt", {}
        token_s = (self.budgets.costs.speed(call.replica) or (None,))[0] if about else None
        call.sources = described(sources, token_s, about)
        self.metrics.came_from(sources, call.headers)

    def _evicted(self, call: Call, report: CallReport | None) -> tuple[str, dict[str, Any]]:
        """Return which program took the memory, and how long before."""
        if report is None or not report.evicted_tokens:
            return "evicted", {"by": None, "seconds_ago": None}
        by, text = self.prompts.name(report.evicted_by), "evicted"
        own = by is not None and by.tenant == call.key.tenant
        if by is not None:
            text += f" by {by.program if own else 'a program of another key'}"
        seconds = report.evicted_s
        return f"{text}, {seconds:.0f} s before", {
            "by": by.program if by is not None and own else None,
            "seconds_ago": seconds,
        }


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


def _expired(before: Outline, report: CallReport | None) -> tuple[str, bool]:
    """Return why an engine lost a prompt that no program evicted, "" if unknown; and whether it was
    to keep it no longer.
    """
    if report is None:
        return "", False
    if before.ended:
        return "the session had ended, idle for too long", True
    if any(hint.startswith(_RETENTION_ENDED) for hint in report.hints):
        return "its retention had ended", True
    emptied = 0 < report.emptied_s <= time() - before.at
    return f"the cache was emptied {report.emptied_s:.0f} s before" if emptied else "", False
