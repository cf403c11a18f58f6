"""Where the tokens of a program's prompts came from: the form of receipts and stories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from weft_gateway.policies.misses import WHO, Cause, Split
from weft_gateway.transcripts.outline import Change

_NOWHERE: Final = Change("", "", None, 0)


@dataclass(slots=True, eq=False)
class Sources:
    """Of one call. token_s: seconds in which its replica computes a token, None if unknown. before:
    the replica of the prompt that it continues; moved: why it ran elsewhere. evicted_by: the
    program that took the memory, "" for one of another key, None if unknown; evicted_s: how long
    before. expired: why the engine had nothing left.
    """

    split: Split
    token_s: float | None = None
    change: Change = _NOWHERE
    before: str = ""
    moved: str = ""
    evicted_by: str | None = None
    evicted_s: float | None = None
    expired: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the member `prompt` of a receipt."""
        split = self.split
        return {
            "cached": split.cached,
            "loaded": split.loaded,
            "new": split.new,
            "again": sum(split.again.values()),
            "cause": {
                cause.value: {
                    "tokens": tokens,
                    "seconds": self._seconds(tokens),
                    **self._about(cause),
                    "who": WHO[cause],
                    "text": self.why(cause),
                }
                for cause, tokens in split.again.items()
            },
            "text": self._text(),
        }

    def _seconds(self, tokens: int) -> float | None:
        return None if self.token_s is None else tokens * self.token_s

    def _about(self, cause: Cause) -> dict[str, Any]:
        if cause is Cause.CHANGED:
            change = self.change
            return {
                "kind": change.kind,
                "path": change.path or None,
                "message": change.message,
                "byte": change.byte,
            }
        if cause is Cause.MOVED:
            return {"from": self.before, "why": self.moved}
        if cause is Cause.EVICTED:
            return {"by": self.evicted_by or None, "seconds_ago": self.evicted_s}
        if cause is Cause.EXPIRED:
            return {"why": self.expired}
        return {}

    def _text(self) -> str:
        split = self.split
        again = sum(split.again.values())
        parts = [f"{split.cached} cached"]
        parts += [f"{split.loaded} loaded"] if split.loaded else []
        parts += [f"{split.new} new", f"{again} computed again"]
        text = ", ".join(parts)
        if again:
            causes = [f"{tokens} {self.why(cause)}" for cause, tokens in split.again.items()]
            text += ": " + "; ".join(causes)
        return text

    def why(self, cause: Cause) -> str:
        """Return a cause in words."""
        if cause is Cause.CHANGED:
            change = self.change
            if not change.path:
                return f"changed: {change.kind}"
            return f"changed at {change.path}, byte {change.byte}: {change.kind}"
        if cause is Cause.MOVED:
            return f"moved from {self.before}: {self.moved}"
        if cause is Cause.EVICTED:
            whose = self.evicted_by
            by = "" if whose is None else f" by {whose or 'a program of another key'}"
            ago = "" if self.evicted_s is None else f", {self.evicted_s:.0f} s before"
            return f"evicted{by}{ago}"
        if cause is Cause.EXPIRED:
            return f"expired: {self.expired}"
        return "another cache salt"


def summary(calls: Iterable[Sources | None]) -> dict[str, Any] | None:
    """Return the sums over calls, None if nothing is known of any. `seconds` counts the causes
    whose costs are known.
    """
    known = [call for call in calls if call is not None]
    if not known:
        return None
    causes: dict[str, dict[str, Any]] = {}
    for call in known:
        for cause, tokens in call.split.again.items():
            found = causes.setdefault(
                cause.value, {"calls": 0, "tokens": 0, "seconds": None, "who": WHO[cause]}
            )
            found["calls"] += 1
            found["tokens"] += tokens
            if call.token_s is not None:
                found["seconds"] = (found["seconds"] or 0.0) + tokens * call.token_s
    return {
        "calls": len(known),
        "cached": sum(call.split.cached for call in known),
        "loaded": sum(call.split.loaded for call in known),
        "new": sum(call.split.new for call in known),
        "again": sum(sum(call.split.again.values()) for call in known),
        "cause": causes,
    }
