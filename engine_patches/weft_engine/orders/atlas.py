"""ATLAS: adaptive thread-level attained service (Agentix equation 2)."""

from __future__ import annotations

from dataclasses import dataclass

from weft_engine.orders.base import CallView
from weft_engine.orders.ladder import LadderOrder


@dataclass(frozen=True, slots=True)
class Atlas(LadderOrder):
    """For programs of many threads: the longest critical path observed so far, one scalar a
    program (Algorithm 1, line 4). Calls of one program enter one queue, so that none straggles."""

    name: str = "atlas"

    def attained(self, view: CallView) -> float:
        """The critical path's service when the call was opened."""
        return view.critical_path_s

    def waited(self, view: CallView) -> float:
        """W_p, of all threads."""
        return view.program_waiting_s
