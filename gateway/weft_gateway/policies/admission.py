"""Admission of programs to the KV cache of an engine without Weft's plugin. Pure.

Programs whose contexts fit into the cache together are residents: their calls are always sent. A
call of another program, a guest, is sent if its context fits beside them. Otherwise it is held, for
a limited time (`weft_engine.working_sets` has the choice of residents).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from weft_engine.working_sets import WorkingSets

# The fraction of the cache that residents fill. The rest is for guests, and for what residents grow
# beyond their predicted sets.
_SHARE: Final = 0.75
# A single call up to this fraction of the cache is never held: it evicts little.
_SMALL: Final = 1 / 64
# How much longer than the usual gap a resident may be without a call.
_MARGIN: Final = 1.5
# A shorter limit is not worth it: to compute a large context again takes about this long, seconds.
_LEAST_KEEP_S: Final = 5.0
# Programs whose shared tokens are known.
_MOST_PROGRAMS: Final = 8192


class Why(StrEnum):
    """Why a held call was sent. LEFT: it was not, its client disconnected."""

    RESIDENT = "resident"
    FITS = "fits"
    IDLE = "idle"
    LATE = "late"
    LEFT = "left"


@dataclass(slots=True, eq=False)
class Claim:
    """A call's claim on the memory of one replica.

    program: "" for a single call. arrival_s: of the program, Unix time. tokens: of the call's
    context, without those that other programs share. weight: of the tenant. single: it is the only
    call of its program so far. until: when it is sent in any case. ahead: the programs before it
    when it was first held. counted: it counts as a call of its program. guest: it was sent, and its
    program is no resident. tail: the end of the answer, for its usage.
    """

    call: str
    program: str
    arrival_s: float
    tokens: int
    tenant: str = ""
    weight: float = 1.0
    single: bool = False
    until: float = math.inf
    ahead: int = 0
    counted: bool = False
    guest: bool = False
    why: Why | None = None
    tail: tuple[bytes, bytes] = (b"", b"")


class Admission:
    """Admission to the cache of one replica. tokens: the size of the cache. wait_s: how long a call
    is held at most. Instants are seconds on any one clock.

    held: the calls that wait, by id. due: when `admit` has to run next at the latest.
    """

    def __init__(self, tokens: int, wait_s: float) -> None:
        self.tokens = tokens
        self.held: dict[str, Claim] = {}
        self.due = math.inf
        self._wait_s = wait_s
        self._sets = WorkingSets(int(_SHARE * tokens))
        self._sent: dict[str, Claim] = {}
        self._guest_tokens = 0
        # The tokens of each program that other programs had sent before.
        self._shared: dict[str, int] = {}

    @property
    def keep_s(self) -> float:
        """How long a resident may be without a call, seconds: longer than most programs' gaps, and
        at most as long as a call may be held for it.
        """
        least, gap_s = min(_LEAST_KEEP_S, self._wait_s), self._sets.usual_gap_s()
        wanted = self._wait_s if gap_s is None else _MARGIN * gap_s
        return wanted if least < wanted <= self._wait_s else least

    @property
    def residents(self) -> int:
        """The number of residents."""
        return len(self._sets.residents)

    @property
    def kept_tokens(self) -> int:
        """The predicted working sets of the residents."""
        return self._sets.blocks - self._sets.left

    def enter(self, claim: Claim, now: float, shared: int = 0) -> bool:
        """A call has arrived. Returns whether it is sent now; otherwise it is held. shared: tokens
        of its context that other programs have sent to this replica; known for the call that gives
        its program a home.
        """
        program = claim.program
        if shared and program:
            self._shared[program] = shared
            if len(self._shared) > _MOST_PROGRAMS:
                del self._shared[next(iter(self._shared))]
        claim.tokens = self._own(program, claim.tokens)
        if program:
            claim.counted = True
            self._sets.arrive(
                program, claim.tokens, now, claim.arrival_s, claim.tenant, claim.weight
            )
        self._choose()
        if self._fits(claim) is None:
            # Programs that are away too long may still have their places.
            self._expire(now)
            if (claim.single and claim.tokens <= _SMALL * self.tokens) or self._fits(claim):
                self._send(claim)
                return True
            claim.until = now + self._wait_s
            claim.ahead = self.residents + len(
                {one.program or one.call for one in self.held.values() if _first(one, claim)}
            )
            self.held[claim.call] = claim
            self._set_due()
            return False
        self._send(claim)
        return True

    def leave(self, claim: Claim, now: float, tokens: int = 0) -> None:
        """A call has ended, sent or not. Ignored if it has left before. tokens: of its context at
        the end; 0 if unknown.
        """
        if self.held.pop(claim.call, None) is not None:
            claim.why = Why.LEFT
        elif self._sent.pop(claim.call, None) is None:
            return
        elif claim.guest:
            self._guest_tokens -= claim.tokens
        if claim.counted:
            own = self._own(claim.program, tokens) if tokens else claim.tokens
            self._sets.leave(claim.program, own, now)

    def end(self, program: str) -> None:
        """A program will not call again."""
        self._sets.end(program)
        self._shared.pop(program, None)
        for claims in (self._sent, self.held):
            for claim in claims.values():
                if claim.program == program:
                    claim.counted = False

    def admit(self, now: float) -> list[Claim]:
        """Return the held calls that are sent now, the oldest program's first. Call this after each
        end of a call or program, and at `due`.
        """
        if not self.held:
            self.due = math.inf
            return []
        self._expire(now)
        sent = []
        for claim in sorted(self.held.values(), key=_age):
            why = self._fits(claim) or (Why.LATE if now >= claim.until else None)
            if why is not None:
                claim.why = why
                del self.held[claim.call]
                self._send(claim)
                sent.append(claim)
        self._set_due()
        return sent

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        guests = sum(claim.tokens for claim in self._sent.values() if claim.guest)
        found = self._sets.violations()
        if guests != self._guest_tokens:
            found.append(f"guests have {guests} tokens, and {self._guest_tokens} are counted")
        both = self.held.keys() & self._sent.keys()
        if both:
            found.append(f"{sorted(both)[:5]} are held and sent")
        if self.held and not self._sent:
            found.append(f"{len(self.held)} calls are held for an idle replica")
        return found

    def _fits(self, claim: Claim) -> Why | None:
        if claim.program in self._sets.residents:
            return Why.RESIDENT
        if claim.tokens <= self.tokens - self.kept_tokens - self._guest_tokens:
            return Why.FITS
        return None if self._sent else Why.IDLE

    def _send(self, claim: Claim) -> None:
        self._sent[claim.call] = claim
        if claim.program not in self._sets.residents:
            claim.guest = True
            self._guest_tokens += claim.tokens

    def _choose(self) -> None:
        came, gone = self._sets.choose()
        if not (came or gone):
            return
        for claim in self._sent.values():
            claim.guest = claim.program not in self._sets.residents
        self._guest_tokens = sum(claim.tokens for claim in self._sent.values() if claim.guest)

    def _expire(self, now: float) -> None:
        self._sets.expire(now - self.keep_s)
        self._choose()

    def _own(self, program: str, tokens: int) -> int:
        return max(1, tokens - self._shared.get(program, 0))

    def _set_due(self) -> None:
        self.due = min((claim.until for claim in self.held.values()), default=math.inf)
        idle = self._sets.next_idle() if self.held else None
        if idle is not None:
            self.due = min(self.due, idle + self.keep_s)


def _age(claim: Claim) -> tuple[float, str]:
    return claim.arrival_s, claim.call


def _first(claim: Claim, other: Claim) -> bool:
    return _age(claim) < _age(other)
