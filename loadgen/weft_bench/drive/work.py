"""Remaining cost of a program for an engine, for the order `srpt`. Pure."""

from __future__ import annotations

from typing import Final

from weft_bench.workloads.cutting import ReadyProgram

# Service is the duration of a call's steps. A token of an answer takes a step, and a step reads
# many tokens of a prompt. These values are those of the demo model on a CPU with a few calls in the
# batch. An order depends only on the ratios of costs and on how fast a running call's cost falls.
# On a faster engine all costs are too large by the same factor.
STEP_S: Final = 0.002
PROMPT_TOKENS_A_STEP: Final = 128


def costs(program: ReadyProgram) -> list[float]:
    """Return the service that each call needs, seconds, from its tokens.

    A prompt costs only the tokens beyond those of the calls it waits for, because these are cached.
    The estimate ignores evictions.
    """
    return [
        STEP_S * (ready.max_tokens + program.fresh_tokens(number) / PROMPT_TOKENS_A_STEP)
        for number, ready in enumerate(program.calls)
    ]
