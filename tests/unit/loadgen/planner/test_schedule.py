"""Helium's Algorithm 1."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from support.planning import call, chain, static, varies, workflows
from weft_bench.planner.calls import PlannedCall
from weft_bench.planner.schedule import Worker, delay, depths, schedule, usage

_WORKER = Worker(8192)


def test_example_of_the_paper() -> None:
    """Figure 4: agent 2 reads the question once alone and once with the answer of agent 1."""
    question = varies("question")
    calls = (
        call("2", static("agent 2"), question, static("answer", 8)),
        call("1", static("agent 1"), question, static("answer", 8)),
        call("3", static("agent 2"), question, static("review", 8), varies("1"), needs=("1",)),
    )
    (sequences,) = schedule(calls, {"w": _WORKER}).values()
    assert [name for one in sequences for name in one] == ["1", "2", "3"]


def test_calls_below_one_static_prefix_are_one_inner_sequence() -> None:
    system, context = static("system"), varies("context")
    calls = tuple(call(str(n), system, context, static(f"role {n}", 8)) for n in range(3))
    assert schedule(calls, {"w": _WORKER})["w"] == (("0", "1", "2"),)


def test_calls_with_different_static_prefixes_are_separate() -> None:
    assert schedule(chain(), {"w": _WORKER})["w"] == (("first",), ("second",), ("judge",))


def test_longest_chain_comes_first() -> None:
    calls = (
        call("short", static("a")),
        call("long", static("b")),
        call("end", static("c"), needs=("long",)),
    )
    (sequences,) = schedule(calls, {"w": _WORKER}).values()
    assert sequences[0] == ("long",)
    assert depths(calls) == {"short": 0, "long": 1, "end": 0}


def test_calls_follow_their_assignment() -> None:
    found = schedule(
        chain(),
        {"a": _WORKER, "b": _WORKER},
        {"first": "a", "second": "b", "judge": "a"},
    )
    assert found == {"a": (("first",), ("judge",)), "b": (("second",),)}
    with pytest.raises(ValueError, match="unknown workers: c"):
        schedule(chain(), {"a": _WORKER}, dict.fromkeys(["first", "second", "judge"], "c"))


@settings(max_examples=30)
@given(workflows())
def test_every_call_is_scheduled_once_after_its_inputs(calls: tuple[PlannedCall, ...]) -> None:
    found = schedule(calls, {"a": _WORKER, "b": _WORKER})
    assert found["a"] == found["b"]
    order = [name for one in found["a"] for name in one]
    assert sorted(order) == sorted(one.name for one in calls)
    place = {name: at for at, name in enumerate(order)}
    assert all(place[need] < place[one.name] for one in calls for need in one.needs)


def test_usage_is_that_of_the_paper() -> None:
    # a (o u_p + o (o + 1) / 2) with a = 1 / M
    assert usage(100, 4, 1 / 1000) == pytest.approx(0.41)
    assert delay(4, 1 / 1000, 1000) == pytest.approx(4)
