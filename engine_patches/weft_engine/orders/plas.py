"""PLAS: program-level attained service (Agentix equation 1)."""

from __future__ import annotations

from dataclasses import dataclass

from weft_engine.orders.base import CallView
from weft_engine.orders.ladder import LadderOrder


@dataclass(frozen=True, slots=True)
class Plas(LadderOrder):
    """For programs of one thread: what the program's finished calls have used."""

    name: str = "plas"

    def attained(self, view: CallView) -> float:
        """T_p: the sum over finished calls."""
        return view.program_service_s

    def waited(self, view: CallView) -> float:
        """W_p."""
        return view.program_waiting_s
