"""VTC: the program that was given the fewest tokens first (virtual token counter, a baseline).

After Sheng et al., Fairness in Serving Large Language Models (OSDI 2024), with programs in the
place of clients.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from weft_engine.orders.base import CallView, OneQueue

# Weights of a token read and of a token written, as in the paper's evaluation.
READ_WEIGHT: Final = 1.0
WRITE_WEIGHT: Final = 2.0
_KEPT_PROGRAMS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Vtc(OneQueue):
    """Fair between programs, blind to how long they are."""

    name: str = "vtc"

    @property
    def moving(self) -> bool:
        """Counters grow with every step."""
        return True

    @property
    def counts_tokens(self) -> bool:
        """It lives by them."""
        return True

    def rank(self, view: CallView) -> float:
        """The program's counter."""
        return view.program_tokens


@dataclass(slots=True)
class TokenCounters:
    """One counter a program. The least recently active are forgotten beyond 65,536."""

    _counts: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def arrive(self, program: str, active: Iterable[str]) -> None:
        """A call came. A program that was idle is lifted to the least of the active ones, so
        that it cannot save up turns (the paper's Algorithm 2)."""
        others = list(active)
        count = self._counts.get(program, 0.0)
        if program not in others and others:
            count = max(count, min(self._counts.get(other, 0.0) for other in others))
        self._counts[program] = count
        self._counts.move_to_end(program)
        while len(self._counts) > _KEPT_PROGRAMS:
            self._counts.popitem(last=False)

    def serve(self, program: str, read: int, written: int) -> None:
        """A step gave the program this many tokens."""
        given = READ_WEIGHT * read + WRITE_WEIGHT * written
        self._counts[program] = self._counts.get(program, 0.0) + given

    def of(self, program: str) -> float:
        """The program's counter; 0 where it is unknown."""
        return self._counts.get(program, 0.0)
