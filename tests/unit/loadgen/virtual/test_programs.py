"""The initial state of a program."""

from __future__ import annotations

from support.simulated import ready
from weft_bench.virtual.programs import begin_program
from weft_bench.workloads.schema import Part, TraceCall


def test_calls_have_their_needed_calls():
    calls = [
        TraceCall(parts=(Part("a", 10),), output_tokens=1),
        TraceCall(parts=(Part("a", 10), Part("b", 5)), output_tokens=2),
        TraceCall(parts=(Part("a", 10), Part("c", 7)), output_tokens=3, after=(0,)),
    ]
    program = begin_program(ready("p", *calls), 4.0, 4.0)
    assert program.needs == [set(), {0}, {0}]
    assert program.followers == [[1, 2], [], []]
    assert program.due == [4.0, 4.0, 4.0]
    assert (program.unanswered, program.records) == (3, [])
