"""Answers that run while a long context is computed. Lengths are constants, not draws."""

from __future__ import annotations

from typing import Final

from weft_bench.workloads.schema import Part, TraceProgram
from weft_bench.workloads.workload import Dialogue, Workload

# The first program: its first prompt, its gap until all answers run, and its second prompt.
_FIRST: Final = 200
_GAP_S: Final = 20.0
CONTEXT: Final = 100_000
# Each other program: its prompt, and an answer that outlasts the context's prefill.
_PROMPT: Final = 8_000
_ANSWER: Final = 2_000


def program(seed: int, number: int) -> TraceProgram:
    """Return the program whose context is computed, which is the oldest, or one with an answer."""
    name = f"answers-{seed}-{number}"
    dialogue = Dialogue(name, (Part(f"{name}/prompt", _PROMPT if number else _FIRST, "user"),))
    dialogue.call(_ANSWER if number else 1, _GAP_S)
    if not number:
        dialogue.say("tool", CONTEXT)
        dialogue.call(1)
    return dialogue.program()


WORKLOADS: Final = (
    Workload("answers", "none: answers that run beside a prompt of 100,000 tokens", program),
)
