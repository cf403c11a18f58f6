"""Programs that have an emulated engine to themselves, compared with sums by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.peers import SHAPE, replicas
from weft_bench.peers.alone import alone_emulated
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import TraceCall
from weft_engine.emulated.cost_model import CostModel

pytestmark = [pytest.mark.engine, pytest.mark.slow]

STEP = 0.25
DILATE = 2.0


def computed(*calls: tuple[int, int, tuple[int, ...] | None, float]) -> float:
    """Return the engine seconds of a program on an engine whose steps take STEP and read 64 prompt
    tokens.

    calls: the tokens of a prompt and of its answer, the calls before it, and the gap after it in
    engine seconds. Prompts of equal length are equal.
    """
    shape = replace(SHAPE, cost=CostModel(STEP), slots=8, step_tokens=64, kv_blocks=64)
    ready = []
    for prompt, output, after, _ in calls:
        # The chat template adds 24 characters.
        text = str(prompt).ljust(4 * prompt - 24, "x")
        trace = TraceCall(messages=({"role": "user", "content": text},), after=after)
        ready.append(ReadyCall(trace, prompt, output))
    program = ReadyProgram("p", tuple(ready), cut=False, trimmed=False)
    there = replace(replicas(DILATE), shapes=(shape,))
    gaps = [gap_s * DILATE for *_, gap_s in calls]
    return alone_emulated(there, 4.0)(program, [b""] * len(calls), gaps) / DILATE


def test_a_chain_takes_its_steps_and_its_gaps():
    # The gap after the last answer does not count.
    found = computed((16, 4, (), 2.0), (17, 2, (0,), 9.0))
    assert found == pytest.approx(4 * STEP + 2.0 + 2 * STEP)


def test_calls_side_by_side_share_steps_and_a_join_waits_for_the_longer_gap():
    found = computed((18, 2, (), 1.0), (19, 4, (), 0.5), (20, 1, (0, 1), 0.0))
    assert found == pytest.approx(max(2 * STEP + 1.0, 4 * STEP + 0.5) + STEP)


def test_repeated_prompt_is_in_the_cache():
    assert computed((320, 1, (), 0.0)) == pytest.approx(5 * STEP)
    assert computed((320, 1, (), 0.0), (320, 1, (0,), 0.0)) == pytest.approx(6 * STEP)
