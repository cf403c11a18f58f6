"""What a client or the gateway believes about a call: advisory, never trusted for safety."""

from __future__ import annotations

from typing import Final

from weft_gateway.model.record import record
from weft_gateway.model.tag import Tag


@record
class HintLimits:
    """How far a tenant's hints may go. max_retain_s: seconds for which KV blocks may be kept.
    max_priority, max_reuse_priority: either way from 0. max_deadline_s: seconds from now.
    max_tag: the highest tag that a client may give; PARTIAL_PREFILL is
    for prefills that the gateway asked for. max_tags: tags a call."""

    max_retain_s: float = 3600.0
    max_priority: int = 8
    max_reuse_priority: int = 4
    max_deadline_s: float = 86_400.0
    max_tag: Tag = Tag.SYSTEM_PROMPT
    max_tags: int = 64


@record
class OwnTag:
    """A tag that a client gives to its messages, or else to the tokens from `start` to before
    `end`. name: where it stood, for its fate. message: the index of the first; -1 is what stands
    before all messages. messages: how many. clamped: the client asked for a higher one, or for
    tokens where none can be."""

    name: str
    tag: Tag
    message: int | None = None
    start: int = 0
    end: int = 0
    clamped: bool = False
    messages: int = 1


@record
class Hints:
    """All that a call's hints say, in one polarity and unit, within its tenant's limits.

    priority: higher is sooner, 0 is usual. reuse_priority: keep its KV blocks so many tiers longer
    (Sutradhara's `set_reuse_priority`). retain_s: pin its blocks so long; retain_to: only up to
    and with this message, -1 for what stands before all messages, None for the whole prompt.
    deadline_s: seconds from now until the answer is of no use. prefill_next: the next turn will
    come, and may be prefilled ahead. tags: of its own messages. fates: `name=applied`,
    `name=applied, clamped` or `name=ignored: why`, one for each hint. None: not given.
    """

    priority: int | None = None
    reuse_priority: int | None = None
    retain_s: float | None = None
    retain_to: int | None = None
    deadline_s: float | None = None
    prefill_next: bool | None = None
    tags: tuple[OwnTag, ...] = ()
    fates: tuple[str, ...] = ()


NO_HINTS: Final = Hints()
