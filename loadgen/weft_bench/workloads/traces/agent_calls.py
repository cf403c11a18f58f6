"""Recorded agents, one call per line: prompt and answer as text, with the time of the call.

A prompt with speakers ("user: ...") is split into messages at the speakers. Any other prompt is
split at the end of the previous prompt, so that the prompts of a run share whole messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from weft_bench.workloads.schema import TraceCall, TraceProgram

# The engine uses most of the time between two calls. The trace does not separate engine and tools,
# so this share counts as the gap.
GAP_SHARE: Final = 0.2
_MICROSECONDS: Final = 1e6
_SPEAKER: Final = re.compile(r"(?:^|\n\n)(system|user|assistant|tool): ")


def read(records: Iterable[Mapping[str, Any]]) -> Iterator[TraceProgram]:
    """Yield one program per session, in order of their start.

    Arrivals are relative to the first session.
    """
    sessions: dict[str, list[tuple[int, str, str]]] = {}
    for record in records:
        call = int(record["timestamp"]), str(record["input"]), str(record["output"])
        sessions.setdefault(record["session_id"], []).append(call)
    begun = sorted((sorted(calls), name) for name, calls in sessions.items())
    for calls, name in begun:
        arrival_s = (calls[0][0] - begun[0][0][0][0]) / _MICROSECONDS
        times = [at for at, _, _ in calls]
        gaps = [GAP_SHARE * (after - at) / _MICROSECONDS for at, after in pairwise(times)]
        prompts = _messages([prompt for _, prompt, _ in calls])
        yield TraceProgram(
            f"agent-{name}",
            tuple(
                TraceCall(messages=messages, output_bytes=len(answer.encode()), gap_s=gap_s)
                for messages, (_, _, answer), gap_s in zip(
                    prompts, calls, [*gaps, 0.0], strict=True
                )
            ),
            arrival_s,
        )


def _messages(prompts: Iterable[str]) -> Iterator[tuple[Mapping[str, Any], ...]]:
    said: tuple[Mapping[str, Any], ...] = ()
    before = ""
    for prompt in prompts:
        if _SPEAKER.match(prompt):
            pieces = _SPEAKER.split(prompt)[1:]
            yield tuple(
                {"role": role, "content": text}
                for role, text in zip(pieces[::2], pieces[1::2], strict=True)
            )
            continue
        if not (before and prompt.startswith(before)):
            said, before = (), ""
        if prompt != before or not said:
            said += ({"role": "user", "content": prompt[len(before) :]},)
        before = prompt
        yield said
