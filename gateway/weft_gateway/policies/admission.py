"""Admission of programs to the KV cache of an engine without Weft's plugin. Pure.

Programs whose contexts fit into the cache together are residents: their calls are always sent. A
call of another program, a guest, is sent if its context fits beside them. Otherwise it is held, for
a limited time (`weft_engine.working_sets` has the choice of residents).

Such an engine evicts the context that was used least recently. A guest's context that is no longer
needed therefore takes room until all residents have been used after it.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from weft_engine.working_sets import Thread, WorkingSets

# The fraction of the cache that residents fill. The rest is for guests, and for what residents grow
# beyond their predicted sets.
_SHARE: Final = 0.9
# A single call up to this fraction of the cache is never held: it evicts little.
_SMALL: Final = 1 / 64
# How much longer than the usual gap a resident may be without a call.
_MARGIN: Final = 1.5
# A program may be without a call for this many prefills of the whole cache, if most return by then.
_MOST_PREFILLS: Final = 2.0
# The share of recent gaps that have to end by then, otherwise no place is kept.
_RETURNING: Final = 0.5
_GAPS: Final = 64
_FEWEST_GAPS: Final = 8
# The time of one such prefill until it is measured, seconds.
_PREFILL_S: Final = 5.0
# It is measured with the last calls of at least this length.
_PACES: Final = 16
_PACE_TOKENS: Final = 1024
# An output token takes about as long as this number of prompt tokens: the ratio of an accelerator's
# computing rate to its memory's bandwidth.
_OUTPUT: Final = 75
# Programs whose shared tokens, or last ends of calls, are known.
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
    when it was first held. thread: that of its program, if it has one. guest: it was sent, and its
    program is no resident. sent_s: when it was sent. timed: its prefill was measured.
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
    thread: Thread | None = None
    guest: bool = False
    sent_s: float = 0.0
    timed: bool = False
    why: Why | None = None


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
        # The contexts without a call that the engine still has, the least recently used first.
        self._resting: OrderedDict[str, int] = OrderedDict()
        self._resting_tokens = 0
        # When the last call of a program ended, and recent gaps until the next one, seconds.
        self._ended_s: dict[str, float] = {}
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        # Seconds per prompt token of recent calls that found nothing in the cache.
        self._paces: deque[float] = deque(maxlen=_PACES)

    @property
    def keep_s(self) -> float:
        """How long a resident may be without a call, seconds.

        At least the time of a prefill of the whole cache, which is the break-even of keeping and
        computing again. Up to twice as long if most programs return by then. 0 if few do.
        """
        least, gap_s = _PREFILL_S, self._sets.usual_gap_s()
        if self._paces:
            # Most calls also waited for others.
            least = self.tokens * sorted(self._paces)[len(self._paces) // 4]
        most = _MOST_PREFILLS * least
        wanted = most if gap_s is None else _MARGIN * gap_s
        keep_s = wanted if least < wanted <= most else least
        gaps = self._gaps
        returned = sum(gap <= keep_s for gap in gaps)
        few_return = len(gaps) >= _FEWEST_GAPS and returned < _RETURNING * len(gaps)
        return 0.0 if few_return else keep_s

    @property
    def residents(self) -> int:
        """The number of residents."""
        return len(self._sets.residents)

    @property
    def names(self) -> list[str]:
        """The residents."""
        return list(self._sets.residents)

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
            ended_s = self._ended_s.pop(program, None)
            if ended_s is not None:
                self._gaps.append(now - ended_s)
            claim.thread = self._sets.arrive(
                program, claim.tokens, now, claim.arrival_s, claim.tenant, claim.weight
            )
        self._choose()
        small = claim.single and claim.tokens <= _SMALL * self.tokens
        if not small and self._fits(claim) is None:
            # Programs that are away too long may still have their places.
            self._expire(now)
            if self._fits(claim) is None:
                self._hold(claim, now)
                return False
        self._send(claim, now)
        return True

    def answers(self, claim: Claim, now: float, output: int = 1) -> None:
        """A call that was sent has this number of output tokens. Its prefill is measured once."""
        if claim.single and not claim.timed and claim.tokens >= _PACE_TOKENS:
            claim.timed = True
            self._paces.append((now - claim.sent_s) / (claim.tokens + _OUTPUT * output))

    def leave(self, claim: Claim, now: float, tokens: int = 0) -> None:
        """A call has ended, sent or not. Ignored if it has left before. tokens: of its context at
        the end; 0 if unknown.
        """
        own = self._own(claim.program, tokens) if tokens else claim.tokens
        if self.held.pop(claim.call, None) is not None:
            claim.why = Why.LEFT
        elif self._sent.pop(claim.call, None) is None:
            return
        else:
            self._rest(claim.program or claim.call, own)
            if claim.guest:
                self._guest_tokens -= claim.tokens
        if claim.thread is not None:
            self._sets.leave(claim.thread, own, now)
        if self._sets.calls_of(claim.program):
            self._ended_s[claim.program] = now
            if len(self._ended_s) > _MOST_PROGRAMS:
                del self._ended_s[next(iter(self._ended_s))]

    def end(self, program: str) -> None:
        """A program will not call again."""
        self._sets.end(program)
        self._shared.pop(program, None)
        self._ended_s.pop(program, None)

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
                self._send(claim, now)
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
        if sum(self._resting.values()) != self._resting_tokens:
            found.append(f"{self._resting_tokens} tokens are counted for contexts without a call")
        if self.held and not self._sent:
            found.append(f"{len(self.held)} calls are held for an idle replica")
        return found

    def _fits(self, claim: Claim) -> Why | None:
        if claim.program in self._sets.residents:
            return Why.RESIDENT
        left = self.tokens - self.kept_tokens - self._guest_tokens
        # The scan is only for calls that it decides.
        if claim.tokens <= left and (
            claim.tokens <= left - self._resting_tokens
            or claim.tokens <= left - self._remains(claim.program)
        ):
            return Why.FITS
        return None if self._sent else Why.IDLE

    def _remains(self, program: str) -> int:
        """Return the tokens of contexts that are not kept, and that the engine evicts only after a
        resident's. The program's own context is used again.
        """
        tokens, residents = 0, self._sets.residents
        names = iter(self._resting.items() if residents else ())
        if any(name in residents for name, _ in names):
            others = residents | {program}
            tokens = sum(tokens for name, tokens in names if name not in others)
        return tokens

    def _rest(self, name: str, tokens: int) -> None:
        """A context is without a call. The engine has evicted what exceeds its cache."""
        self._resting_tokens += tokens - self._resting.pop(name, 0)
        self._resting[name] = tokens
        while self._resting_tokens > self.tokens:
            self._resting_tokens -= self._resting.popitem(last=False)[1]

    def _hold(self, claim: Claim, now: float) -> None:
        claim.until = now + self._wait_s
        before = [one for one in self.held.values() if _age(one) < _age(claim)]
        claim.ahead = self.residents + len({one.program or one.call for one in before})
        self.held[claim.call] = claim
        self._set_due()

    def _send(self, claim: Claim, now: float) -> None:
        claim.sent_s = now
        self._sent[claim.call] = claim
        self._resting_tokens -= self._resting.pop(claim.program, 0)
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
            # The next number: rounded sums would let `admit` run at `due` without an effect.
            self.due = min(self.due, math.nextafter(idle + self.keep_s, math.inf))


def _age(claim: Claim) -> tuple[float, str]:
    return claim.arrival_s, claim.call
