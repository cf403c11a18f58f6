"""A workload: programs of calls, as every reader and generator gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Final

# What prompt tokens hold, as engines number it on the wire; the first is evicted first.
TAGS: Final = {"RESPONSE": 1, "TOOL_OUTPUT": 2, "USER_QUERY": 3, "SYSTEM_PROMPT": 4}


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a prompt of which the length counts and the text does not.

    name: whose content it is; of two parts of one name the shorter is how the longer begins.
    tokens: how many. kind: "system", "user", "tool" or "assistant", as the roles of messages; ""
    where nobody knows.
    """

    name: str
    tokens: int
    kind: str = ""


@dataclass(frozen=True, slots=True)
class TraceCall:
    """One call. It has chat messages, prompt token ids, or parts.

    messages: the whole conversation before the answer, as recorded: the recorded answers are used
    as history, not the model's, so that contexts are the real ones. prompt_ids: token ids of any
    vocabulary. output_bytes or output_tokens: length of the recorded answer, whichever the trace
    knows. tags: what the prompt's ids hold, as (end, name in TAGS) with ends that grow.
    gap_s: time from the answer to the next call (tools, thinking), seconds. after: which
    earlier calls of the program must have answered first; None: the call before it, (): none.
    answer: the name of the part that its answer is in later prompts, "" where answers do not return
    as they were. tool_s: how long each tool runs that its answer asks for, seconds; they run side
    by side within the gap. Raises ValueError for lengths and times below 0 or without an end.
    """

    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    prompt_ids: tuple[int, ...] = ()
    tags: tuple[tuple[int, str], ...] = ()
    output_bytes: int = 0
    output_tokens: int = 0
    gap_s: float = 0.0
    after: tuple[int, ...] | None = None
    parts: tuple[Part, ...] = ()
    answer: str = ""
    tool_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name, length in (("bytes", self.output_bytes), ("tokens", self.output_tokens)):
            if length < 0:
                raise ValueError(f"output_{name} is no whole number from 0: {length}")
        for name, seconds in (("gap_s", (self.gap_s,)), ("tool_s", self.tool_s)):
            if not all(0 <= value < inf for value in seconds):
                raise ValueError(f"{name} is no number from 0: {seconds}")

    def needs(self, number: int) -> tuple[int, ...]:
        """Numbers of the calls whose answers this one waits for, as the program's call `number`."""
        if self.after is not None:
            return self.after
        return (number - 1,) if number else ()


@dataclass(frozen=True, slots=True)
class TraceProgram:
    """One run of an agent: its calls in an order in which each waits for earlier ones only; calls
    that do not wait for each other run side by side. arrival_s: when it came, seconds from the
    workload's start; None where nobody knows. Raises ValueError for another order, and for an
    arrival that is no instant."""

    id: str
    calls: tuple[TraceCall, ...]
    arrival_s: float | None = None

    def __post_init__(self) -> None:
        if self.arrival_s is not None and not isfinite(self.arrival_s):
            raise ValueError(f"arrival_s of {self.id} is no instant: {self.arrival_s}")
        for number, call in enumerate(self.calls):
            if any(not 0 <= needed < number for needed in call.needs(number)):
                raise ValueError(
                    f"call {number} of {self.id} must wait for earlier calls, not {call.after}"
                )


class TraceError(ValueError):
    """A trace cannot be read. The message says what is wrong and what is known."""
