"""Where the tokens of a program's prompts came from: the form of receipts and stories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from weft_gateway.policies.misses import WHO, Cause, Split

_SOURCES: Final = ("cached", "loaded", "new", "again")


def described(
    split: Split, token_s: float | None, about: Mapping[Cause, tuple[str, dict[str, Any]]]
) -> dict[str, Any]:
    """Return the member `prompt` of a receipt. token_s: seconds in which its replica computes a
    token, None if unknown. about: each cause in words, and its details.
    """
    again = sum(split.again.values())
    text = f"{split.cached} cached, " + (f"{split.loaded} loaded, " if split.loaded else "")
    text += f"{split.new} new, {again} computed again"
    if again:
        text += ": " + "; ".join(f"{n} {about[cause][0]}" for cause, n in split.again.items())
    return {
        **dict(zip(_SOURCES, (split.cached, split.loaded, split.new, again), strict=True)),
        "cause": {
            cause.value: {
                "tokens": tokens,
                "seconds": None if token_s is None else tokens * token_s,
                **about[cause][1],
                "who": WHO[cause],
                "text": about[cause][0],
            }
            for cause, tokens in split.again.items()
        },
        "text": text,
    }


def summary(calls: Iterable[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the sums over the prompts of receipts, None if nothing is known of any. `seconds`
    counts the causes whose costs are known.
    """
    known = [call for call in calls if call is not None]
    if not known:
        return None
    causes: dict[str, dict[str, Any]] = {}
    for name, one in [pair for call in known for pair in call["cause"].items()]:
        none = {"calls": 0, "tokens": 0, "seconds": None, "who": one["who"]}
        found = causes.setdefault(name, none)
        found["calls"] += 1
        found["tokens"] += one["tokens"]
        if one["seconds"] is not None:
            found["seconds"] = (found["seconds"] or 0.0) + one["seconds"]
    sums = {name: sum(call[name] for call in known) for name in _SOURCES}
    return {"calls": len(known), **sums, "cause": causes}
