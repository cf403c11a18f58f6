"""Where the tokens of a prompt come from, and why some were computed again. Pure.

The engine counts what was cached, loaded and evicted. The gateway knows the program's earlier
prompts. Both positions meet in the first token that the engine had to compute.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

# Engines keep full blocks only, and templates end a prompt with a few tokens that the next one may
# not have: fewer missing tokens have no cause.
_SLACK: Final = 64
# Error of a position inside an earlier prompt, as a share of it.
_DOUBT: Final = 0.1


class Cause(StrEnum):
    """Why tokens were computed again."""

    CHANGED = "changed"
    MOVED = "moved"
    EVICTED = "evicted"
    EXPIRED = "expired"
    SALT = "salt"


# Who can change it.
WHO: Final = {
    Cause.CHANGED: "client",
    Cause.MOVED: "operator",
    Cause.EVICTED: "capacity",
    Cause.EXPIRED: "operator",
    Cause.SALT: "client",
}


class Counts(NamedTuple):
    """What an engine has counted. prompt: all tokens. cached: found in the GPU's cache; loaded:
    from other memory. evicted: computed again, because others took their memory.
    """

    prompt: int
    cached: int
    loaded: int = 0
    evicted: int = 0


class Earlier(NamedTuple):
    """What the program's earlier prompts have to do with this one. common: where it leaves them,
    and length: where they end, both in tokens; equal if nothing was changed. lost: why tokens
    before `common` are missing that no program evicted. ended: the session or the retention had
    ended before the eviction. exact: `common` is the end of a prompt that was counted.
    """

    common: float = 0.0
    length: float = 0.0
    lost: Cause = Cause.EXPIRED
    ended: bool = False
    exact: bool = True


class Split(NamedTuple):
    """The tokens of a prompt by source: they add up to the prompt. again: by cause."""

    cached: int
    loaded: int
    new: int
    again: dict[Cause, int]


def split(counts: Counts, earlier: Earlier) -> Split:
    """Return where the tokens of a prompt come from."""
    prompt = counts.prompt
    found = min(counts.cached + counts.loaded, prompt)
    loaded = min(counts.loaded, found)
    evicted = min(counts.evicted, prompt - found)
    # From here on, the engine knows of no earlier copy.
    at = found + evicted
    common = min(max(round(earlier.common), at), prompt)
    length = min(max(round(earlier.length), common), prompt)
    lost, changed = common - at, length - common
    slack = _SLACK if earlier.exact else max(_SLACK, round(_DOUBT * common))
    if lost <= slack:
        changed = changed + lost if changed > _SLACK else 0
        lost = 0
    if changed <= _SLACK:
        changed = 0
    again = {
        Cause.EXPIRED if earlier.ended else Cause.EVICTED: evicted,
        earlier.lost: lost,
        Cause.CHANGED: changed,
    }
    if earlier.ended and earlier.lost is Cause.EXPIRED:
        again[Cause.EXPIRED] = evicted + lost
    again = {cause: tokens for cause, tokens in again.items() if tokens}
    return Split(found - loaded, loaded, prompt - found - sum(again.values()), again)
