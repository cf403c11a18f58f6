"""SRPT: the program with the least work left first. For experiments: nobody can know that."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft_engine.orders.base import CallView, OneQueue


@dataclass(frozen=True, slots=True)
class Srpt(OneQueue):
    """The limit that other orders are measured against (Agentix Figure 20).

    remaining_s of a call is what its program still needs, this call included, as the workload
    tells; calls without it come last. Refused unless `experiments` is set. margin_s: how much less
    a waiting call's program must need to displace a running one.
    """

    experiments: bool = False
    margin_s: float = 0.0
    name: str = "srpt"

    def __post_init__(self) -> None:
        if not self.experiments:
            raise ValueError(
                "order srpt must be told every program's true remaining work, which no service "
                "knows; for experiments set the option 'experiments': true"
            )
        if not self.margin_s >= 0:
            raise ValueError(f"margin_s must be at least 0, got {self.margin_s}")

    @property
    def displaces(self) -> bool:
        """A waiting program with less left displaces a running one."""
        return True

    @property
    def margin(self) -> float | None:
        """By rank; what runs only gets shorter, so that two calls never trade places."""
        return self.margin_s

    @property
    def moving(self) -> bool:
        """What runs gets shorter."""
        return True

    def rank(self, view: CallView) -> float:
        """Work left, seconds."""
        if view.remaining_s is None:
            return math.inf
        return view.remaining_s - view.total_service_s
