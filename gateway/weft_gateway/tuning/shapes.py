"""Shapes of calls: times, token counts and opaque numbers, never texts. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import isfinite

import msgspec

# An answer is counted before its client sees the last byte, so a call that follows it is later.
# The clocks of several gateways differ by about this much.
_CLOCK_S = 0.001


class CallShape(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An ended call. Instants are Unix time, durations seconds, and counts tokens.

    program, unit, kind, model: digests (`opaque`). unit: the turn, or the program of programs
    without turns. known: of its prompt, tokens that its program had sent before. resumed: the
    replica had served the program before. alone_s: its cost with a cache and without other calls, 0
    if unknown. service_s: engine time. deadline_s: of the unit, 0 without one; cost_s, remaining,
    later_s: as in CallBudget.
    """

    program: int
    unit: int
    begin_s: float
    end_s: float
    prompt: int
    cached: int
    known: int
    output: int
    kind: int
    model: int
    replica: str
    resumed: bool
    alone_s: float
    service_s: float
    deadline_s: float = 0.0
    cost_s: float = 0.0
    remaining: int = 0
    later_s: float = 0.0

    def flaw(self) -> str:
        """Return the field with an impossible value, "" if all are possible."""
        times = ("begin_s", "end_s", "alone_s", "service_s", "deadline_s", "cost_s", "later_s")
        counts = ("prompt", "cached", "known", "output", "remaining")
        for name in (*times, *counts):
            value = getattr(self, name)
            if not isfinite(value) or value < 0:
                return name
        return "end_s" if self.end_s < self.begin_s else ""


def opaque(*names: str) -> int:
    """Return a number that stands for these names. The names cannot be read from it."""
    digest = blake2b("\n".join(names).encode("utf-8", "surrogatepass"), digest_size=6)
    return int.from_bytes(digest.digest())


class Step(msgspec.Struct, frozen=True):
    """A call in the order of its program. after: positions of the calls that it waited for. gap_s:
    from the last of their ends, or from the program's begin, to its own begin.
    """

    call: CallShape
    after: tuple[int, ...]
    gap_s: float


def in_order(calls: Iterable[CallShape]) -> list[Step]:
    """Return one program's calls by begin, each with the calls that had to end before it.

    These are the one that ended last before the call began, and those that ran beside that one:
    all earlier calls had ended before it began.
    """
    ordered = sorted(calls, key=lambda call: (call.begin_s, call.end_s))
    if not ordered:
        return []
    begun_s, steps = ordered[0].begin_s, []
    # (end, position), sorted.
    ended = sorted((call.end_s, at) for at, call in enumerate(ordered))
    for at, call in enumerate(ordered):
        last, after = -1, []
        # From the one that ended last to those that had ended before it began.
        for place in range(bisect_left(ended, (call.begin_s + _CLOCK_S, -1)) - 1, -1, -1):
            end_s, other = ended[place]
            if other >= at:
                continue
            if last < 0:
                last = other
            elif end_s <= ordered[last].begin_s:
                break
            after.append(other)
        pause_s = call.begin_s - (ordered[last].end_s if after else begun_s)
        steps.append(Step(call, tuple(sorted(after)), max(0.0, pause_s)))
    return steps


class UnitShape(msgspec.Struct, frozen=True):
    """An ended program or turn. served_s: time with an open call. alone_s: the longest chain of the
    calls' times alone, 0 if one is unknown. calls: by begin.
    """

    program: int
    unit: int
    begin_s: float
    end_s: float
    served_s: float
    alone_s: float
    deadline_s: float
    calls: tuple[CallShape, ...]

    @property
    def latency_s(self) -> float:
        """From the first begin to the last end."""
        return self.end_s - self.begin_s

    @property
    def slowdown(self) -> float:
        """The latency over the latency alone, both without pauses between calls; 0 if unknown."""
        return self.served_s / self.alone_s if self.alone_s else 0.0


def unit_of(calls: Sequence[CallShape]) -> UnitShape:
    """Return the unit of these calls. Raises ValueError without calls."""
    if not calls:
        raise ValueError("a unit has at least one call")
    steps = in_order(calls)
    chain: list[float] = []
    for step in steps:
        chain.append(max((chain[at] for at in step.after), default=0.0) + step.call.alone_s)
    first = steps[0].call
    known = all(step.call.alone_s for step in steps)
    return UnitShape(
        first.program,
        first.unit,
        first.begin_s,
        max(call.end_s for call in calls),
        busy_s((call.begin_s, call.end_s) for call in calls),
        max(chain) if known else 0.0,
        max(call.deadline_s for call in calls),
        tuple(step.call for step in steps),
    )


def busy_s(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of these spans (begin, end)."""
    total, until = 0.0, 0.0
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
