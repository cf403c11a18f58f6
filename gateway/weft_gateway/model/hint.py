"""Hints of a client or the gateway about a call. Advisory; safety never depends on them."""

from __future__ import annotations

from typing import Final

from weft_gateway.model.record import record
from weft_gateway.model.tag import Tag


@record
class OwnTag:
    """A client's tag for messages, or else for the tokens from `start` up to but not including
    `end`. name: its place in the request, for its fate. message: index of the first message; -1 for
    the part before all messages. messages: their number. clamped: the client requested a higher tag
    or tokens out of range.
    """

    name: str
    tag: Tag
    message: int | None = None
    start: int = 0
    end: int = 0
    clamped: bool = False
    messages: int = 1


@record
class Hints:
    """All hints of a call, in one polarity and unit, within its tenant's limits.

    priority: higher is sooner, 0 is the default. reuse_priority: number of tiers by which its KV
    blocks are kept longer (Sutradhara's `set_reuse_priority`). retain_s: seconds to pin its blocks;
    retain_to: only up to and including this message, -1 for the part before all messages, None for
    the whole prompt. deadline_s: seconds from now after which the answer is useless. prefill_next:
    the next turn will come and may be prefilled. slo: the SLO class of the program.
    program_deadline_s: seconds for the whole program, from its first call. replica: where the call
    should run. batch: the call can wait while other clients use the replicas. tags: for its
    messages.
    fates: `name=applied`, `name=applied, clamped` or `name=ignored: reason`, one per hint. None:
    not set.
    """

    priority: int | None = None
    reuse_priority: int | None = None
    retain_s: float | None = None
    retain_to: int | None = None
    deadline_s: float | None = None
    prefill_next: bool | None = None
    slo: str | None = None
    program_deadline_s: float | None = None
    replica: str | None = None
    batch: bool | None = None
    tags: tuple[OwnTag, ...] = ()
    fates: tuple[str, ...] = ()


NO_HINTS: Final = Hints()
