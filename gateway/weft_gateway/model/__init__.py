"""The vocabulary as immutable records. Standard library only; no I/O."""

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
from weft_gateway.model.replica import ReplicaView
from weft_gateway.model.routing import Beginning, Decision, RouteRequest, Shared

__all__ = [
    "Beginning",
    "Closing",
    "Decision",
    "EndedProgram",
    "Opened",
    "Opening",
    "Outcome",
    "Program",
    "ProgramAttribute",
    "ProgramCounts",
    "ProgramKey",
    "ReplicaView",
    "RouteRequest",
    "Shared",
    "Thread",
]
