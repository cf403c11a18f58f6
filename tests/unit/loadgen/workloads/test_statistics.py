"""Statistics of a workload."""

from __future__ import annotations

import pytest
from weft_bench.workloads.schema import Part, TraceCall, TraceProgram
from weft_bench.workloads.statistics import arrival_figures, pieces_of, statistics


def talk(name="a", arrival_s=None):
    head = Part("system", 100, "system")
    asked = Part(f"{name}/asked", 50, "user")
    answer = Part(f"{name}/answer", 20, "assistant")
    more = Part(f"{name}/more", 30, "tool")
    return TraceProgram(
        name,
        (
            TraceCall(
                parts=(head, asked),
                output_tokens=20,
                answer=answer.name,
                tool_s=(1.0, 3.0),
                gap_s=3.0,
            ),
            TraceCall(parts=(head, asked, answer, more), output_tokens=10),
        ),
        arrival_s,
    )


def test_new_tokens_are_those_not_held_by_calls_waited_for():
    found = statistics([talk()])
    assert found["calls mean"] == 2
    assert found["prompt mean"] == (150 + 200) / 2
    assert found["new prompt mean"] == (150 + 30) / 2
    assert found["kept"] == 170 / 200
    # The answer was in no earlier prompt.
    assert found["cached"] == 150 / 350
    assert found["output max"] == 20


def test_tools_are_counted_by_answer():
    found = statistics([talk()])
    assert (found["tool mean"], found["tool variance"]) == (2.0, 1.0)
    assert (found["fan-out p50"], found["fan-out max"]) == (2, 2)
    assert found["gap mean"] == 1.5


def test_infinite_cache_holds_shared_prefixes():
    found = statistics([talk("a"), talk("b")])
    assert found["cached"] == pytest.approx((150 + 100 + 150) / 700)


def test_parallel_calls_hold_nothing_for_each_other():
    call = TraceCall(parts=(Part("x", 10),), output_tokens=1, after=())
    found = statistics([TraceProgram("p", (call, call, call))])
    assert found["calls at once"] == 3
    assert found["new prompt mean"] == 10
    assert "kept" not in found
    assert found["cached"] == pytest.approx(2 / 3)


def test_shorter_part_is_a_prefix_of_a_longer_one():
    calls = tuple(TraceCall(parts=(Part("x", n),), output_tokens=1) for n in (10, 25))
    assert statistics([TraceProgram("p", calls)])["new prompt mean"] == (10 + 15) / 2


def test_messages_ids_and_tools_count_too():
    message = {"role": "user", "content": "x" * 40}
    assert sum(n for _, n in pieces_of(TraceCall(messages=(message,)))) == 10
    assert sum(n for _, n in pieces_of(TraceCall(parts=(Part("a", 30), Part("b", 7))))) == 37
    with_tools = TraceCall(messages=(message,), tools=({"type": "function"},))
    assert len(pieces_of(with_tools)) == 2


def test_arrival_figures_require_known_arrivals():
    assert "arrivals CV" not in statistics([talk()])
    found = statistics([talk(str(n), arrival_s=2.0 * n) for n in range(4)])
    assert found["arrivals per s"] == 0.5
    assert found["arrivals CV"] == 0
    assert arrival_figures([1.0, 1.0, 1.0]) == {}
