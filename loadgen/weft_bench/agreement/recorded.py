"""Recorded coding sessions at their lengths, as chats and, for virtual time, as parts.

The parts have exactly the tokens that the demo model's chat template makes of the messages.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import structs

from weft_bench.agents.contents import exact_chat
from weft_bench.workloads.cutting import ReadyProgram, fitting
from weft_bench.workloads.schema import TraceError
from weft_bench.workloads.traces.files import read_trace

SESSIONS: Final = "coding_sessions"
_CONTEXT: Final = 131_072
# Longer gaps are mostly those of persons.
_LONGEST_GAP_S: Final = 10.0


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
    calls = []
    for number, one in enumerate(program.calls):
        ready = exact_chat(one, f"{program.id}/{number}")
        gap_s = min(_LONGEST_GAP_S, one.call.gap_s)
        calls.append(replace(ready, call=structs.replace(ready.call, gap_s=gap_s)))
    return replace(program, calls=tuple(calls))
