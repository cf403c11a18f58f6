"""First program first: calls by the arrival of their program."""

from __future__ import annotations

from dataclasses import dataclass

from weft_engine.orders.base import CallView, OneQueue


@dataclass(frozen=True, slots=True)
class ProgramFifo(OneQueue):
    """A baseline that knows programs but not what they have used: the oldest program's call is
    next. Calls without a program count as programs that arrived at the epoch's start."""

    name: str = "program_fifo"

    def rank(self, view: CallView) -> float:
        """Unix time at which the program arrived."""
        return view.program_arrival_s
