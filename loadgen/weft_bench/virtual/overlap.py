"""Orchestrator features that overlap tools and engine (Sutradhara 4). Pure.

`docs/guides/prefills.md` describes the gateway's part. `weft_bench.overlap.player` is the same
orchestrator over HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft_engine.tags import Tag, flatten
from weft_engine.wire import CallReport

from weft_bench.virtual.records import PrefillRecord
from weft_bench.workloads.schema import Part

# TAKE_WAIT_S: how long a turn waits for its running prefill before the prefill is stopped, seconds.
# PREFILL_TAGS: the tags of a prefill; spans are cut to the prompt. Both equal those of
# `gateway/weft_gateway/calls/prefills.py`.
TAKE_WAIT_S: Final = 0.25
PREFILL_TAGS: Final = tuple(flatten([(1 << 24, Tag.PARTIAL_PREFILL)]))


@dataclass(frozen=True, slots=True)
class Overlap:
    """Features of the orchestrator.

    split: while tools run, prefill the beginning of the next turn (4.1). dispatch: start each tool
    when its call is complete in the stream (4.2). tell_tags: send block tags to an engine that
    evicts by them (4.3). retain_s: pin a program's blocks for this long after an answer that calls
    tools, seconds, as Continuum does (section 6); 0 turns it off. forget: if the engine tags blocks
    or its order reserves cache, send it each program's end, as the gateway does; the program's own
    blocks are then evicted first.
    """

    split: bool = False
    dispatch: bool = False
    tell_tags: bool = True
    retain_s: float = 0.0
    forget: bool = True


def complete_at(output_tokens: int, tools: int) -> list[int]:
    """Return the token of the answer with which each tool call is complete, counted from 1.

    The answer is modelled as a JSON array of calls of equal length, as in the paper: call i of k
    has its closing brace at token ceil(n i / k), the last one at the answer's end.
    """
    return [-(-output_tokens * number // tools) for number in range(1, tools + 1)]


def all_done_s(answered_s: float, starts_s: Sequence[float], tool_s: Sequence[float]) -> float:
    """Return when the answer and all its tools have ended. starts_s: the start of each tool."""
    ends = (start + lasts for start, lasts in zip(starts_s, tool_s, strict=True))
    return max(answered_s, *ends) if tool_s else answered_s


def known_before_tools(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts that are known before the tools end whose outputs end the prompt.

    Empty if the prompt ends with another kind of part, because the time of that part is unknown.
    """
    length = len(parts)
    while length and parts[length - 1].kind == "tool":
        length -= 1
    return tuple(parts[:length]) if length < len(parts) else ()


THREAD: Final = "prefill"


class Prefills:
    """The prefills of a simulation. records: all of them, in the order of their requests."""

    def __init__(self) -> None:
        self.records: list[PrefillRecord] = []
        self._running: dict[str, PrefillRecord] = {}
        self._placed: dict[tuple[str, int], str] = {}
        self._held: dict[tuple[str, int], float] = {}

    def begin(self, call: str, record: PrefillRecord) -> None:
        """Record that a prefill was sent to an engine, under the name `call`."""
        self.records.append(record)
        self._running[call] = record
        self._placed[record.program, record.number] = record.replica

    def running(self, call: str) -> PrefillRecord | None:
        """Return the prefill with this name if it has not ended."""
        return self._running.get(call)

    def hold(self, program: str, number: int, now: float) -> str:
        """Return the name of the prefill that an arriving turn waits for, "" for none."""
        call = name_of(program, number)
        if call not in self._running:
            return ""
        self._held[program, number] = now
        return call

    def release(self, program: str, number: int, now: float) -> tuple[float, str]:
        """Continue a turn. Returns its arrival and the replica of its prefill, "" for none."""
        turn = (program, number)
        return self._held.pop(turn, now), self._placed.pop(turn, "")

    def end(self, report: CallReport, computed_tokens: int, now: float) -> tuple[str, int] | None:
        """End or stop a prefill. Returns the turn that waits for it, or None.

        computed_tokens: tokens that the prefill added to the cache.
        """
        record = self._running.pop(report.call)
        record.end_s = now
        record.service_s = report.service_s
        record.waiting_s = report.waiting_s
        record.cached_tokens = report.cached_tokens
        record.computed_tokens = computed_tokens
        turn = (record.program, record.number)
        return turn if turn in self._held else None


def name_of(program: str, number: int) -> str:
    """Return the name of the prefill for this call of a program."""
    return f"{program}/{number}/{THREAD}"
