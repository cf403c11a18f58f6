"""First come, first served: vLLM's own order."""

from __future__ import annotations

from dataclasses import dataclass

from weft_engine.orders.base import OneQueue


@dataclass(frozen=True, slots=True)
class Fcfs(OneQueue):
    """One queue, no quantum, nobody displaced."""

    name: str = "fcfs"
