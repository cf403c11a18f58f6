"""A workload: programs of calls, as every reader and generator returns them."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

# The wire numbers of prompt tokens' tags. The first is evicted first.
TAGS: Final = {"RESPONSE": 1, "TOOL_OUTPUT": 2, "USER_QUERY": 3, "SYSTEM_PROMPT": 4}
# The limits apply to programs that are read from a file.
Whole = Annotated[int, Meta(ge=0)]
Number = Annotated[float, Meta(ge=0)]


class Part(Struct, frozen=True, array_like=True):
    """A piece of a prompt that has a length but no text.

    name: of the content; if two parts have one name, the shorter is a prefix of the longer. tokens:
    length. kind: "system", "user", "tool" or "assistant", the roles of messages; "" if unknown.
    """

    name: str
    tokens: Whole
    kind: str = ""


class TraceCall(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One call with chat messages or parts. Parts beside messages are the same prompt with its
    lengths in tokens.

    messages: the whole conversation before the answer, as recorded. Recorded answers, not the
    model's, form the history, so that contexts are the real ones. output_bytes or output_tokens:
    length of the recorded answer, whichever the trace has.

    gap_s: seconds from the answer to the next call (tools, thinking). after: earlier calls of the
    program that must end first; None for the call before this one, () for no calls. answer: name of
    the part that the answer becomes in later prompts; "" if it does not return unchanged. tool_s:
    seconds that each requested tool runs; tools run in parallel within the gap. ends_turn: the
    recorded answer requests no tools. Raises ValueError for lengths and times that are negative or
    infinite.
    """

    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    output_bytes: Whole = 0
    output_tokens: Whole = 0
    gap_s: Number = 0.0
    after: tuple[Whole, ...] | None = None
    parts: tuple[Part, ...] = ()
    answer: str = ""
    tool_s: tuple[Number, ...] = ()
    ends_turn: bool = False

    def __post_init__(self) -> None:
        for name, length in (("bytes", self.output_bytes), ("tokens", self.output_tokens)):
            if length < 0:
                raise ValueError(f"output_{name} must be at least 0, got {length}")
        for name, seconds in (("gap_s", (self.gap_s,)), ("tool_s", self.tool_s)):
            if not all(0 <= value < inf for value in seconds):
                raise ValueError(f"{name} must be finite and at least 0, got {seconds}")

    def needs(self, number: int) -> tuple[int, ...]:
        """Return the numbers of the calls that this one, the program's call `number`, waits for."""
        if self.after is not None:
            return self.after
        return (number - 1,) if number else ()


class TraceProgram(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One run of an agent.

    Calls are in an order in which each waits for earlier ones only. Calls that do not wait for each
    other run in parallel. arrival_s: seconds from the workload's start, or None if unknown. Raises
    ValueError for another order and for an infinite arrival.
    """

    id: str
    calls: tuple[TraceCall, ...]
    arrival_s: Number | None = None

    def __post_init__(self) -> None:
        if self.arrival_s is not None and not isfinite(self.arrival_s):
            raise ValueError(f"arrival_s of {self.id} must be finite, got {self.arrival_s}")
        for number, call in enumerate(self.calls):
            if any(not 0 <= needed < number for needed in call.needs(number)):
                raise ValueError(
                    f"call {number} of {self.id} must wait for earlier calls, not {call.after}"
                )


class TraceError(ValueError):
    """A trace cannot be read. The message gives the cause."""
