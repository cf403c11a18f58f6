"""Turns of recorded programs, and the SLO classes with their targets. Pure.

A turn begins with the first call of a program, or with the call after an answer that the record
marks as an answer without tool calls. It ends with such an answer, or with the last call that is
played. A program without such marks is one turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from typing import Any, Final

from msgspec.structs import replace

from weft_bench.workloads.cutting import ReadyProgram
from weft_bench.workloads.schema import TraceCall

# A class for each target from 0.25 s in steps of 12%, up to about five minutes. The gateway accepts
# 64 classes.
_FIRST_S: Final = 0.25
_STEP: Final = 1.12
_CLASSES: Final = 63
_NO_TARGET: Final = "none"
# Engines put a tool call into the answer to a call whose body contains this text.
CALLS_TOOL: Final = "weft-bench-calls-tool"


@dataclass(frozen=True, slots=True)
class UserTurn:
    """One turn of a program as it is played.

    first, last: numbers of its calls. alone_s: its duration alone, and target_s: the longest
    duration that meets its target, both in real seconds. slo: the name of the SLO class with this
    target.
    """

    first: int
    last: int
    alone_s: float
    target_s: float
    slo: str


def spans(program: ReadyProgram) -> list[tuple[int, int]]:
    """Return the numbers of the first and the last call of each turn."""
    final = len(program.calls) - 1
    ends = [n for n, ready in enumerate(program.calls) if ready.call.ends_turn and n < final]
    return list(zip([0, *(end + 1 for end in ends)], [*ends, final], strict=True))


def with_targets(
    program: ReadyProgram, alone_s: Sequence[float], scale: float
) -> tuple[UserTurn, ...]:
    """Return the turns of a program with their targets.

    A target is `scale` times the turn's duration alone, rounded up to the deadline of a class.
    Raises ValueError if no class has such a deadline.
    """
    found = []
    for (first, last), seconds in zip(spans(program), alone_s, strict=True):
        number = max(0, ceil(log(scale * seconds / _FIRST_S, _STEP)))
        if number >= _CLASSES:
            raise ValueError(
                f"a turn of {program.id} has a target of {scale * seconds:.0f} s; the longest one "
                f"is {_deadline_s(_CLASSES - 1):.0f} s"
            )
        found.append(UserTurn(first, last, seconds, _deadline_s(number), _name(number)))
    return tuple(found)


def slo_file() -> str:
    """Return the SLO file of the gateway: a class of scope `turn` for each target."""
    lines = ["version: 1", f"default: {_NO_TARGET}", "classes:", f"  {_NO_TARGET}: {{}}"]
    for number in range(_CLASSES):
        deadline = f"{round(1000 * _deadline_s(number))}ms"
        lines.append(f"  {_name(number)}: {{scope: turn, deadline: {deadline}}}")
    return "\n".join([*lines, ""])


def with_roles(calls: Sequence[TraceCall]) -> list[TraceCall]:
    """Return the chats of a program in a form that shows where turns begin.

    The last message of a call has the role of a tool if the answer before requests tools, and the
    user's otherwise. Recorded prompts may end with an answer, because their lengths are rounded;
    such a prompt gets an empty message.
    """
    found = []
    for number, call in enumerate(calls):
        begins = number == 0 or calls[number - 1].ends_turn
        last = call.messages[-1]["role"] if call.messages else ""
        if begins == (last == "user") and last in ("user", "tool"):
            found.append(call)
            continue
        added: Mapping[str, Any] = {"role": "user", "content": ""}
        if not begins:
            added = tool_message("")
        found.append(replace(call, messages=(*call.messages, added)))
    return found


def tool_message(content: str) -> Mapping[str, Any]:
    """Return a tool's result as a message. The record has no ids of tool calls."""
    return {"role": "tool", "tool_call_id": "recorded", "content": content}


def durations(
    turns: Sequence[UserTurn], times: Mapping[int, tuple[float, float]]
) -> list[tuple[float, UserTurn]]:
    """Return the seconds from the first call of each turn to its last answer; infinity for a turn
    in which a call was not answered.

    times: when each answered call was sent and answered, by its number.
    """
    found = []
    for turn in turns:
        calls = [times.get(number) for number in range(turn.first, turn.last + 1)]
        known = [one for one in calls if one is not None]
        seconds = inf
        if len(known) == len(calls):
            seconds = max(end for _, end in known) - min(begun for begun, _ in known)
        found.append((seconds, turn))
    return found


def _deadline_s(number: int) -> float:
    return _FIRST_S * _STEP**number


def _name(number: int) -> str:
    return f"turn-{number}"
