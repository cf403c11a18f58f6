"""The vocabulary as immutable records. Standard library only; no I/O."""

from weft_gateway.model.program import (
    Census,
    Closing,
    EndedProgram,
    Opened,
    Opening,
    Outcome,
    Program,
    ProgramKey,
    Thread,
    Told,
)
from weft_gateway.model.replica import ReplicaView
from weft_gateway.model.routing import Beginning, Decision, RouteRequest, Shared

__all__ = [
    "Beginning",
    "Census",
    "Closing",
    "Decision",
    "EndedProgram",
    "Opened",
    "Opening",
    "Outcome",
    "Program",
    "ProgramKey",
    "ReplicaView",
    "RouteRequest",
    "Shared",
    "Thread",
    "Told",
]
