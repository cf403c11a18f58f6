"""Windows: an idle replica takes the calls with the latest turn of a busy one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_run.plan.commands import ANY
from weft_run.plan.windows import Windows


def windows(slots: dict[str, int], calls: int, **serves: frozenset[str]) -> Windows:
    found = Windows(slots, serves)
    unit: Any = None
    for number in range(calls):
        found.put("busy", ((number,), number, (), number, unit))
    return found


def test_an_idle_replica_takes_a_late_call() -> None:
    found = windows({"busy": 1, "idle": 2}, 9)
    found.take("busy")
    ((name, waiting, place),) = list(found.sources())
    assert (name, place) == ("idle", -1)
    assert [waiting.pop(place)[0] for _ in range(2)] == [(8,), (7,)]


def test_of_equal_turns_an_idle_replica_takes_the_last_row() -> None:
    found = Windows({"busy": 1, "idle": 2})
    unit: Any = None
    for row in range(4):
        for order in range(2):
            found.put("busy", ((), row, (order,), 2 * row + order, unit))
    found.take("busy")
    ((_, waiting, place),) = list(found.sources())
    assert [waiting.pop(place)[1:3] for _ in range(3)] == [(3, (1,)), (3, (0,)), (2, (1,))]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_help_takes_all_calls_of_one_turn_before_those_of_another(turns: list[int]) -> None:
    found = Windows({"busy": 1, "idle": 40})
    unit: Any = None
    # Rows in any order: calls of one turn are not next to each other in the heap.
    for number, turn in enumerate(turns):
        found.put("busy", ((turn,), number % 7, (), number, unit))
    found.take("busy")
    taken = []
    while sources := list(found.sources()):
        ((_, waiting, place),) = sources
        taken.append(waiting.pop(place)[0][0])
    assert taken == sorted(turns, reverse=True)


def test_a_replica_helps_only_those_with_its_models() -> None:
    small, large = frozenset({"small"}), frozenset({"large"})
    found = windows({"busy": 1, "other": 2, "same": 2}, 3, busy=small, other=large, same=small)
    found.take("busy")
    assert [name for name, _, _ in found.sources()] == ["same"]


@pytest.mark.parametrize(
    ("busy", "idle", "least"),
    [
        # The owner ends two calls at once: its third one begins after the first two.
        (1.0, 0.5, 3),
        (1.0, 0.25, 7),
        (1.0, 0.9, 1),
        (0.5, 1.0, 1),
        (0.5, 0.5, 1),
    ],
)
def test_an_idle_replica_takes_a_call_only_if_it_ends_the_call_sooner(
    busy: float, idle: float, least: int
) -> None:
    helps = []
    for waiting in range(1, 9):
        found = Windows({"busy": 2, "idle": 2}, speeds={"busy": busy, "idle": idle})
        unit: Any = None
        for number in range(waiting):
            found.put("busy", ((number,), number, (), number, unit))
        found.take("busy")
        found.take("busy")
        helps.append([name for name, _, _ in found.sources()] == ["idle"])
    assert helps == [waiting >= least for waiting in range(1, 9)]


def test_a_slow_replica_takes_calls_of_a_slow_one_beside_a_fast_one() -> None:
    speeds = {"fast": 1.0, "slow": 0.5, "idle": 0.5}
    found = Windows({"fast": 2, "slow": 2, "idle": 2}, speeds=speeds)
    unit: Any = None
    for number, name in enumerate(["fast", "fast", "slow"]):
        found.put(name, ((number,), number, (), number, unit))
    for name in ("fast", "fast", "slow", "slow"):
        found.take(name)
    ((name, waiting, place),) = list(found.sources())
    assert (name, [entry[0] for entry in waiting], place) == ("idle", [(2,)], -1)


def test_calls_for_any_replica_go_to_the_fastest_one() -> None:
    found = Windows({"slow": 4, "fast": 4}, speeds={"slow": 0.6, "fast": 1.0})
    unit: Any = None
    taken = []
    for number in range(8):
        found.put(ANY, ((), number, (), number, unit))
        name = next(found.sources())[0]
        found.take(name)
        taken.append(name)
    # The slow one is faster than a fast one with three of four calls.
    assert taken == ["fast"] * 3 + ["slow", "fast", "slow", "slow", "slow"]
