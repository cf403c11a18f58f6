"""Recorded coding sessions at their lengths, as chats and, for virtual time, as parts.

The parts have exactly the tokens that the demo model's chat template makes of the messages.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import structs

from weft_bench.agents.contents import messages_of
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram, fitting
from weft_bench.workloads.schema import Part, TraceCall, TraceError
from weft_bench.workloads.traces.files import read_trace

SESSIONS: Final = "coding_sessions"
_CONTEXT: Final = 131_072
# Longer gaps are mostly those of persons.
_LONGEST_GAP_S: Final = 10.0
# Tokens that the template adds: around instructions at the start, around another message, and
# before the answer.
_INSTRUCTIONS: Final = 6
_MESSAGE: Final = 5
_ANSWER: Final = 3


def sessions(data: Path, seed: int, count: int, calls: int) -> list[ReadyProgram]:
    """Return sessions with their first calls.

    data: the folder of data sets. calls: limit of a session's calls. Raises TraceError if there are
    too few sessions.
    """
    _, programs = read_trace(data / SESSIONS, seed)
    first = (structs.replace(one, calls=one.calls[:calls]) for one in programs)
    # The lengths are those of parts, which need no ratio.
    found = [_as_chats(one) for one in islice(fitting(first, _CONTEXT, 1.0), count)]
    if len(found) < count:
        raise TraceError(f"{data / SESSIONS} has {len(found)} sessions that fit, not {count}")
    return found


def _as_chats(program: ReadyProgram) -> ReadyProgram:
    calls = [_as_chat(one, f"{program.id}/{number}") for number, one in enumerate(program.calls)]
    return replace(program, calls=tuple(calls))


def _as_chat(ready: ReadyCall, name: str) -> ReadyCall:
    """Return a call with messages, and with the parts that are the same prompt."""
    told, prompt = [], []
    for number, part in enumerate(ready.call.parts):
        around = _MESSAGE if number or part.kind != "system" else _INSTRUCTIONS
        words = max(1, part.tokens - around)
        told.append(Part(part.name, words, part.kind))
        prompt.append((part.name, words + around))
    messages = messages_of(TraceCall(parts=tuple(told)))
    # The gateway knows a message by its role.
    roles = [str(message["role"]) for message in messages]
    parts = [Part(*part, role) for part, role in zip(prompt, roles, strict=True)]
    parts.append(Part(f"{name}/answer", _ANSWER, "assistant"))
    call = structs.replace(
        ready.call,
        messages=messages,
        parts=tuple(parts),
        gap_s=min(_LONGEST_GAP_S, ready.call.gap_s),
    )
    return replace(ready, call=call, prompt_tokens=sum(part.tokens for part in parts))
