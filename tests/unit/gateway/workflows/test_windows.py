"""Windows: an idle replica takes the latest calls of a busy one."""

from __future__ import annotations

import heapq
from typing import Any

from weft_gateway.workflows.windows import Windows


def windows(slots: dict[str, int], calls: int, **serves: frozenset[str]) -> Windows:
    found = Windows(slots, serves)
    unit: Any = None
    for number in range(calls):
        found.put("busy", (float(number), number, (), number, unit))
    return found


def test_an_idle_replica_takes_a_late_call() -> None:
    found = windows({"busy": 1, "idle": 2}, 9)
    found.take("busy")
    ((name, waiting, late),) = list(found.sources())
    assert (name, late) == ("idle", True)
    taken = [waiting.pop()[0], waiting.pop()[0]]
    assert min(taken) > 5
    # The heap is still one.
    assert [heapq.heappop(waiting)[0] for _ in range(len(waiting))] == sorted(
        set(map(float, range(9))) - set(taken)
    )


def test_a_replica_helps_only_those_with_its_models() -> None:
    small, large = frozenset({"small"}), frozenset({"large"})
    found = windows({"busy": 1, "other": 2, "same": 2}, 3, busy=small, other=large, same=small)
    found.take("busy")
    assert [name for name, _, _ in found.sources()] == ["same"]
