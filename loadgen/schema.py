"""A workload: programs of calls, as every reader and generator gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TraceCall:
    """One call. It has either chat messages or prompt token ids.

    messages: the whole conversation before the answer, as recorded: the recorded answers are used
    as history, not the model's, so that contexts are the real ones. prompt_ids: token ids below
    `TOKEN_IDS`. output_bytes or output_tokens: length of the recorded answer, whichever the trace
    knows. gap_s: time from the answer to the next call (tools, thinking), seconds.
    """

    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    prompt_ids: tuple[int, ...] = ()
    output_bytes: int = 0
    output_tokens: int = 0
    gap_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TraceProgram:
    """One run of an agent: its calls in order, each waiting for the answer before it."""

    id: str
    calls: tuple[TraceCall, ...]


class TraceError(ValueError):
    """A trace cannot be read. The message says what is wrong and what is known."""
