"""The vocabulary as immutable records. Standard library only; no I/O."""

from weft_gateway.model.program import (
    Census,
    Closing,
    Gone,
    Opened,
    Opening,
    Outcome,
    Program,
    ProgramKey,
    Thread,
    Told,
)
from weft_gateway.model.replica import ReplicaView
from weft_gateway.model.routing import Decision, PromptPrefix, RouteRequest, Shared

__all__ = [
    "Census",
    "Closing",
    "Decision",
    "Gone",
    "Opened",
    "Opening",
    "Outcome",
    "Program",
    "ProgramKey",
    "PromptPrefix",
    "ReplicaView",
    "RouteRequest",
    "Shared",
    "Thread",
    "Told",
]
