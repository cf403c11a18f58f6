"""Programs for virtual time from the lines of gateways' journals. Pure.

The contents of prompts are unknown. A prompt begins with what calls of its kind share with other
programs, and goes on with what its program shares between calls of this kind; both as long as the
engines' caches have shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from msgspec import Struct

from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import Part, TraceCall

# A call that follows an answer begins after it. Clocks of gateways differ by about this much.
_CLOCK_S: Final = 0.001


class Line(Struct, frozen=True):
    """The members of a line that a replay needs, as in docs/reference/http-api.md."""

    n: int
    call: str
    program: str
    model: str
    kind: str | None
    arrived_at: float
    total_s: float
    outcome: str
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    deadline_s: float | None

    @property
    def end_s(self) -> float:
        """When the call ended, Unix time."""
        return self.arrived_at + self.total_s


@dataclass(frozen=True, slots=True)
class Recorded:
    """A program. arrival_s: Unix time. deadline_s: the longest one of its calls, 0 without one."""

    ready: ReadyProgram
    arrival_s: float
    deadline_s: float


def recorded(programs: Mapping[str, Sequence[Line]]) -> list[Recorded]:
    """Return programs of answered calls, by arrival."""
    # By kind, the cached tokens of each program's first call, which other programs have sent; and
    # the most of the program's later ones.
    others: dict[str, list[int]] = defaultdict(list)
    own: dict[tuple[str, str], int] = {}
    ordered = {name: sorted(of, key=lambda one: one.arrived_at) for name, of in programs.items()}
    for name, calls in ordered.items():
        for line in calls:
            key, tokens = (name, line.kind or ""), line.cached_tokens or 0
            if key in own:
                own[key] = max(own[key], tokens)
            else:
                own[key] = 0
                others[key[1]].append(tokens)
    shared = {kind: int(median(tokens)) for kind, tokens in others.items()}

    def parts(name: str, line: Line) -> tuple[Part, ...]:
        kind, prompt = line.kind or "", line.prompt_tokens or 1
        # At least a token: the gateway tells kinds apart by the system prompt.
        first = min(prompt, max(1, shared[kind]))
        then = max(0, min(prompt, own[name, kind]) - first)
        found = [Part(f"kind/{kind}", first, "system"), Part(f"{name}/{kind}", then, "user")]
        found.append(Part(line.call, prompt - first - then, "user"))
        return tuple(part for part in found if part.tokens)

    found = []
    for name, calls in ordered.items():
        made = []
        for line, (after, pause_s) in zip(calls, _waits(calls), strict=True):
            output, prompt = max(1, line.output_tokens or 1), parts(name, line)
            call = TraceCall(output_tokens=output, gap_s=pause_s, after=after, parts=prompt)
            made.append(ReadyCall(call, line.prompt_tokens or 1, output))
        ready = ReadyProgram(name, tuple(made), cut=False, trimmed=False)
        deadline_s = max(line.deadline_s or 0.0 for line in calls)
        found.append(Recorded(ready, calls[0].arrived_at, deadline_s))
    return sorted(found, key=lambda one: one.arrival_s)


def _waits(lines: Sequence[Line]) -> list[tuple[tuple[int, ...], float]]:
    """Return the calls that each call waited for, and the pause after its own answer.

    It waited for the call that ended last before its arrival, and for those that ran beside that
    one. A call that waited for none begins with its program. lines: by arrival.
    """
    waits: list[tuple[int, ...]] = []
    pauses: dict[int, float] = {}
    for at, line in enumerate(lines):
        before = [one for one in range(at) if lines[one].end_s <= line.arrived_at + _CLOCK_S]
        if before:
            last = max(before, key=lambda one: lines[one].end_s)
            before = [one for one in before if lines[one].end_s > lines[last].arrived_at]
            pause_s = max(0.0, line.arrived_at - lines[last].end_s)
            pauses[last] = min(pause_s, pauses.get(last, pause_s))
        waits.append(tuple(before))
    return [(after, pauses.get(at, 0.0)) for at, after in enumerate(waits)]
