"""Virtual token counters (Sheng et al., OSDI 2024), with programs in the place of clients."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

# Weights of an input and an output token, as in the paper's evaluation.
READ_WEIGHT: Final = 1.0
WRITE_WEIGHT: Final = 2.0
_KEPT_PROGRAMS: Final = 65_536


class TokenCounters:
    """One counter per program; the 65,536 most recently active programs are kept."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, float] = OrderedDict()

    def arrive(self, program: str, active: Iterable[str]) -> None:
        """A call arrives. A program that was idle is raised to the least active counter, so that it
        cannot accumulate credit (Algorithm 2 of the paper)."""
        others = list(active)
        count = self._counts.get(program, 0.0)
        if program not in others and others:
            count = max(count, min(self._counts.get(other, 0.0) for other in others))
        self._counts[program] = count
        self._counts.move_to_end(program)
        while len(self._counts) > _KEPT_PROGRAMS:
            self._counts.popitem(last=False)

    def serve(self, program: str, read: int, written: int) -> None:
        """A step computed this many input and output tokens for the program."""
        given = READ_WEIGHT * read + WRITE_WEIGHT * written
        self._counts[program] = self._counts.get(program, 0.0) + given

    def of(self, program: str) -> float:
        """The program's counter; 0 if it is unknown."""
        return self._counts.get(program, 0.0)
