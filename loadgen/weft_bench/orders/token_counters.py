"""Virtual token counters (Sheng et al., OSDI 2024), with programs in the place of clients: the rule
of the order `vtc`. Pure."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from weft_engine.call_state import CallState
from weft_engine.reorder import Places, SchedulerView

# Weights of an input and an output token, as in the paper's evaluation.
READ_WEIGHT: Final = 1
WRITE_WEIGHT: Final = 2
_KEPT_PROGRAMS: Final = 65_536


class TokenCounters:
    """One counter per program; the 65,536 most recently active programs are kept."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def arrive(self, program: str, active: Iterable[str]) -> None:
        """A call arrives. A program that was idle is raised to the least active counter, so that it
        cannot accumulate credit (Algorithm 2 of the paper)."""
        others = list(active)
        count = self._counts.get(program, 0)
        if program not in others and others:
            count = max(count, min(self._counts.get(other, 0) for other in others))
        self._counts[program] = count
        self._counts.move_to_end(program)
        while len(self._counts) > _KEPT_PROGRAMS:
            self._counts.popitem(last=False)

    def serve(self, program: str, read: int, written: int) -> None:
        """A step computed this many input and output tokens for the program."""
        given = READ_WEIGHT * read + WRITE_WEIGHT * written
        self._counts[program] = self._counts.get(program, 0) + given

    def of(self, program: str) -> int:
        """The program's counter; 0 if it is unknown."""
        return self._counts.get(program, 0)


class FewestTokens:
    """Keeps each call at the counter of its program. Counters are compared among the programs of
    one tenant only. next_at: before any instant, because each step changes counters."""

    def __init__(self, places: Places) -> None:
        self.next_at = -math.inf
        self._places = places
        self._counters = TokenCounters()
        self._calls: dict[str, CallState] = {}
        # Programs that were served since all their calls were brought to their places.
        self._served: set[str] = set()

    def note(self, call: CallState, now: float) -> None:
        """A call has arrived, has started, was preempted, or has left."""
        name, context = call.context.call, call.context
        if not call.alive:
            self._calls.pop(name, None)
            return
        if name not in self._calls:
            known = (other.context for other in self._calls.values())
            active = {other.program for other in known if other.tenant == context.tenant}
            self._counters.arrive(context.program, active)
            self._calls[name] = call
            self._put(call)

    def served(self, tokens: Mapping[str, int]) -> None:
        """A step has run: count its tokens."""
        for sequence, count in tokens.items():
            call = self._places.of(sequence)
            if call is not None:
                # A step of one token is a decode; a longer one is prefill.
                read, written = (count, 0) if count > 1 else (0, 1)
                self._counters.serve(call.context.program, read, written)
                self._served.add(call.context.program)

    def refresh(self, now: float, scheduler: SchedulerView) -> bool:
        """Bring the waiting calls to their places, and those that run if the engine is about to
        preempt one. Returns whether a call has moved."""
        lacking = scheduler.blocks_lacking() > 0
        calls = Counter(call.context.program for call in self._calls.values())
        moved = False
        for call in self._calls.values():
            program = call.context.program
            # The only call of a program usually runs, so it keeps its place meanwhile.
            if program in self._served and (lacking or (call.waiting and calls[program] > 1)):
                moved |= self._put(call)
        self._served = set() if lacking else self._served & calls.keys()
        return moved

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        return [f"{name} has left" for name, call in self._calls.items() if not call.alive]

    def _put(self, call: CallState) -> bool:
        before, count = call.level, self._counters.of(call.context.program)
        for sequence in call.waiting or call.running:
            self._places.put_at(sequence, count)
            break
        return call.level != before
