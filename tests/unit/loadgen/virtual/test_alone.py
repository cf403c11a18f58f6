"""The time of a program that is alone."""

from __future__ import annotations

from weft_bench.virtual.alone import alone_s
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import TraceCall


def call(prompt: int, output: int, gap: float, after: tuple[int, ...] | None = None) -> ReadyCall:
    return ReadyCall(TraceCall(output_tokens=output, gap_s=gap, after=after), prompt, output)


def test_chain_takes_its_new_tokens_and_gaps():
    program = ReadyProgram("p", (call(100, 1, 2.0), call(150, 1, 3.0)), False, False)
    assert alone_s(program, lambda fresh, output: fresh + 0.5 * output) == 100.5 + 2.0 + 50.5


def test_the_longest_of_several_chains_counts():
    program = ReadyProgram(
        "p", (call(10, 0, 0.0), call(10, 7, 0.0, (0,)), call(10, 3, 0.0, (0,))), False, False
    )
    assert alone_s(program, lambda fresh, output: fresh + output) == 17.0
