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


class Split(NamedTuple):
    """The tokens of a prompt by source: they add up to the prompt. again: by cause."""

    cached: int
    loaded: int
    new: int
    again: dict[Cause, int]


def split(
    prompt: int,
    cached: int,
    loaded: int = 0,
    evicted: int = 0,
    *,
    reach: tuple[float, float] = (0.0, 0.0),
    lost: Cause = Cause.EXPIRED,
    ended: bool = False,
    exact: bool = True,
) -> Split:
    """Return where the tokens of a prompt come from, as the engine has counted them. cached: found
    in the GPU's cache; loaded: from other memory. evicted: computed again, because others took
    their memory.

    reach: where the prompt leaves the program's earlier one, and where that ends, in tokens; equal
    if nothing was changed. exact: the first is the end of a prompt that was counted. lost: why
    tokens before it are missing that no program evicted. ended: the session or the retention had
    ended before the eviction.
    """
    found = min(cached + loaded, prompt)
    loaded = min(loaded, found)
    evicted = min(evicted, prompt - found)
    # From here on, the engine knows of no earlier copy.
    at = found + evicted
    common = min(max(round(reach[0]), at), prompt)
    changed = min(max(round(reach[1]), common), prompt) - common
    missing = common - at
    slack = _SLACK if exact else max(_SLACK, round(_DOUBT * common))
    if missing <= slack:
        changed = changed + missing if changed > _SLACK else 0
        missing = 0
    again = dict.fromkeys(Cause, 0)
    again[Cause.EXPIRED if ended else Cause.EVICTED] += evicted
    again[lost] += missing
    again[Cause.CHANGED] = changed if changed > _SLACK else 0
    again = {cause: tokens for cause, tokens in again.items() if tokens}
    return Split(found - loaded, loaded, prompt - found - sum(again.values()), again)
