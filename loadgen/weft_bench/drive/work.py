"""What a program still costs an engine, for the order that must be told (`srpt`). Pure."""

from __future__ import annotations

from typing import Final

from weft_bench.workloads.cutting import ReadyProgram

# Service is the duration of the steps that a call is in. An answer's token takes a step, and a step
# reads many tokens of a prompt: these are the demo model's on a CPU with a few calls in the batch.
# Only the ratios of programs' costs decide an order, and how fast a running call's cost shrinks
# beside them; a faster engine makes all costs too large alike.
STEP_S: Final = 0.002
PROMPT_TOKENS_A_STEP: Final = 128


def costs(program: ReadyProgram) -> list[float]:
    """The service that each call will need, seconds, by its tokens.

    A prompt is paid for where it is longer than those of the calls that it waits for: what they
    have sent is in the cache. What is evicted meanwhile is not foreseen.
    """
    found = []
    for number, ready in enumerate(program.calls):
        known = max((program.calls[n].prompt_tokens for n in ready.call.needs(number)), default=0)
        fresh = max(0, ready.prompt_tokens - known)
        found.append(STEP_S * (ready.max_tokens + fresh / PROMPT_TOKENS_A_STEP))
    return found
