"""A closed loop: a new program begins when one ends, so that always equally many run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import Part, TraceCall

# The beginning of the names of chats.
CHAT: Final = "chat/"
# Lengths of a chat in tokens.
CHAT_PROMPT: Final = 500
CHAT_ANSWER: Final = 64


@dataclass(frozen=True, slots=True)
class Loop:
    """The simulation ends with the last of the first `counted` programs. Until then, the programs
    after those with an arrival begin one by one, each when another program ends.

    chats_s: seconds between single chats beside the programs, 0 for none.
    """

    counted: int
    chats_s: float = 0.0


def chat(number: int) -> ReadyProgram:
    """Return a program of a single call."""
    name = f"{CHAT}{number}"
    call = TraceCall(parts=(Part(name, CHAT_PROMPT, "user"),), output_tokens=CHAT_ANSWER)
    return ReadyProgram(name, (ReadyCall(call, CHAT_PROMPT, CHAT_ANSWER),), False, False)
