"""Stages of programs, as clients describe them: their stored form, and what remains. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from weft_gateway.model.slo import NO_PLAN, Plan, Stage

# Attribute in the process table that stores a session's plan.
PLAN: Final = "stages"
MAX_STAGES: Final = 64
MAX_STAGE_CALLS: Final = 512


def encode(plan: Plan) -> str:
    """Return the text of a plan."""
    return msgspec.json.encode(plan).decode()


@lru_cache(maxsize=1024)
def decode(text: str) -> Plan:
    """The reverse of `encode`, for every call of the program. Unreadable text of another release
    yields no plan.
    """
    try:
        return msgspec.json.decode(text, type=Plan)
    except msgspec.DecodeError:
        return NO_PLAN


def remaining(
    stages: Sequence[Stage], stage: str | None, begun: int, position: int
) -> tuple[str, list[tuple[str, int]]]:
    """Return the stage of a call, and the stages with calls after it on the path, each with the
    number of these calls.

    position: of the call on the path, from 1. stage: as the client named it, and begun: position of
    the first call of the stage; without a known name, the position tells the stage.
    """
    at, passed = _at(stages, position)
    for number, each in enumerate(stages):
        if each.name == stage:
            at, passed = number, position - begun + 1
            break
    own = stages[at]
    left = [(own.name, own.path_calls - passed)]
    left += [(each.name, each.path_calls) for each in stages[at + 1 :]]
    return own.name, [(name, calls) for name, calls in left if calls > 0]


def _at(stages: Sequence[Stage], position: int) -> tuple[int, int]:
    """Return the index of the stage at a position, and how many of its calls have begun."""
    for number, each in enumerate(stages):
        if position <= each.path_calls:
            return number, position
        position -= each.path_calls
    return len(stages) - 1, MAX_STAGE_CALLS
