"""Programs for virtual time from the lines of gateways' journals. Pure.

The contents of prompts are unknown, and what they share is known: a call names the call whose
prompt it continues, and for how many tokens. The first prompt of a program shares blocks with those
of other programs. Without both, cached tokens show what was shared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from msgspec import Struct

from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import Part, TraceCall
from weft_bench.workloads.traces.coding import first_tokens

# A call that follows an answer begins after it. Clocks of gateways differ by about this much.
_CLOCK_S: Final = 0.001
# Cached tokens are whole blocks of an engine.
_BLOCK_TOKENS: Final = 16


class Line(Struct, frozen=True):
    """The members of a line that a replay needs, as in docs/reference/journal.md."""

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
    thread: str = ""
    replica: str = ""
    first_byte_s: float | None = None
    continues: str | None = None
    common_tokens: int | None = None
    block_tokens: int | None = None
    blocks: tuple[str, ...] = ()

    @property
    def end_s(self) -> float:
        """When the call ended, Unix time."""
        return self.arrived_at + self.total_s

    @property
    def answered(self) -> bool:
        """Whether an engine has answered it, and counted its prompt."""
        return self.outcome == "ok" and bool(self.prompt_tokens)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A program. lines: of its calls. arrival_s: Unix time. deadline_s: the longest one of its
    calls, 0 without one.
    """

    ready: ReadyProgram
    lines: Sequence[Line]
    arrival_s: float
    deadline_s: float


def latest(lines: Iterable[Line], most: int) -> dict[str, list[Line]]:
    """Return the calls of the programs that began last, by program: one, and more as long as they
    have up to `most` calls. 0: all of them.
    """
    programs: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        programs[line.program].append(line)
    found: dict[str, list[Line]] = {}
    room = most
    for name, calls in sorted(programs.items(), key=lambda one: -one[1][0].arrived_at):
        room -= len(calls)
        if room >= 0 or not found or not most:
            found[name] = calls
    return found


def recorded(programs: Mapping[str, Sequence[Line]]) -> list[Recorded]:
    """Return programs of answered calls, by arrival."""
    lines = sorted((one for of in programs.values() for one in of), key=lambda one: one.arrived_at)
    prompts = _prompts(lines)
    found = []
    for name, unordered in programs.items():
        calls = sorted(unordered, key=lambda one: one.arrived_at)
        made = []
        for line, (after, pause_s) in zip(calls, _waits(calls), strict=True):
            output = max(1, line.output_tokens or 1)
            call = TraceCall(
                output_tokens=output, gap_s=pause_s, after=after, parts=prompts[line.call],
                answer=_answer(line.call),
            )  # fmt: skip
            made.append(ReadyCall(call, line.prompt_tokens or 1, output))
        arrival_s = calls[0].arrived_at
        ready = ReadyProgram(name, tuple(made), cut=False, trimmed=False, arrival_s=arrival_s)
        deadline_s = max(line.deadline_s or 0.0 for line in calls)
        found.append(Recorded(ready, calls, arrival_s, deadline_s))
    return sorted(found, key=lambda one: one.arrival_s)


def _answer(call: str) -> str:
    return f"answer/{call}"


def _prompts(lines: Sequence[Line]) -> dict[str, tuple[Part, ...]]:
    """Return the prompts of calls. lines: of all programs, by arrival."""
    known = {line.call: line for line in lines}
    # The last call of each thread so far, and the last call with each beginning.
    threads: dict[tuple[str, str], str] = {}
    begins: dict[str, str] = {}
    returns = _answers_return(lines, known)
    found: dict[str, tuple[Part, ...]] = {}
    for line in lines:
        tokens, shared = line.prompt_tokens or 1, line.cached_tokens or 0
        base = line.continues or ""
        thread = (line.program, line.thread)
        if base in found:
            shared, before = line.common_tokens or 0, known[base]
            if returns and shared >= (before.prompt_tokens or 0):
                shared += before.output_tokens or 1
        elif thread in threads:
            base = threads[thread]
        else:
            same = [number for number, mark in enumerate(line.blocks, 1) if mark in begins]
            if same:
                base = begins[line.blocks[same[-1] - 1]]
                shared = max(shared, same[-1] * (line.block_tokens or 0))
        if base in found:
            answer = Part(_answer(base), known[base].output_tokens or 1, "assistant")
            parts = (*found[base], answer) if returns else found[base]
        else:
            parts = (Part(f"kind/{line.kind or ''}", shared, "system"),)
        parts = first_tokens(parts, min(shared, tokens))
        rest = tokens - sum(part.tokens for part in parts)
        # Most of a first prompt is instructions, and most of what follows comes from tools.
        kind = "tool" if base in found and thread in threads else "system"
        found[line.call] = (*parts, Part(line.call, rest, kind)) if rest else parts
        threads[thread] = line.call
        begins.update(dict.fromkeys(line.blocks, line.call))
    return found


def _answers_return(lines: Iterable[Line], known: Mapping[str, Line]) -> bool:
    """Whether engines mostly had the answer in their cache where they had the prompt before it."""
    shares = []
    for line in lines:
        before = known.get(line.continues or "")
        if before is None or not before.output_tokens or not line.cached_tokens:
            continue
        beyond = line.cached_tokens - (before.prompt_tokens or 0)
        if line.common_tokens == before.prompt_tokens and beyond > -_BLOCK_TOKENS:
            shares.append((beyond + _BLOCK_TOKENS) / before.output_tokens)
    return bool(shares) and median(shares) > 0.5


def _waits(lines: Sequence[Line]) -> list[tuple[tuple[int, ...], float]]:
    """Return the calls that each call waited for, and the pause after its own answer.

    It waited for the call that ended last before its arrival, and for those that ran beside that
    one: calls of its thread, and of threads that began after the last answer in its own. A call
    that waited for none begins with its program. lines: by arrival.
    """
    waits: list[tuple[int, ...]] = []
    pauses: dict[int, float] = {}
    begins: dict[str, float] = {}
    for at, line in enumerate(lines):
        begins.setdefault(line.thread, line.arrived_at)
        before = [one for one in range(at) if lines[one].end_s <= line.arrived_at + _CLOCK_S]
        own = [lines[one].end_s for one in before if lines[one].thread == line.thread]
        if own:
            since_s = max(own) - _CLOCK_S
            before = [one for one in before if _is_of(line.thread, since_s, lines[one], begins)]
        if before:
            last = max(before, key=lambda one: lines[one].end_s)
            before = [one for one in before if lines[one].end_s > lines[last].arrived_at]
            pause_s = max(0.0, line.arrived_at - lines[last].end_s)
            pauses[last] = min(pause_s, pauses.get(last, pause_s))
        waits.append(tuple(before))
    return [(after, pauses.get(at, 0.0)) for at, after in enumerate(waits)]


def _is_of(thread: str, since_s: float, line: Line, begins: Mapping[str, float]) -> bool:
    return line.thread == thread or begins[line.thread] >= since_s
