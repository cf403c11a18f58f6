"""Shared immutable records. Standard library only; no I/O."""

from weft_gateway.model.program import (
    Closing,
    EndedProgram,
    Opened,
    Opening,
    Outcome,
    Program,
    ProgramAttribute,
    ProgramCounts,
    ProgramKey,
    Thread,
)
from weft_gateway.model.routing import (
    Decision,
    Intake,
    PromptPrefix,
    ReplicaCost,
    ReplicaView,
    RouteRequest,
    Shared,
)

__all__ = [
    "Closing",
    "Decision",
    "EndedProgram",
    "Intake",
    "Opened",
    "Opening",
    "Outcome",
    "Program",
    "ProgramAttribute",
    "ProgramCounts",
    "ProgramKey",
    "PromptPrefix",
    "ReplicaCost",
    "ReplicaView",
    "RouteRequest",
    "Shared",
    "Thread",
]
