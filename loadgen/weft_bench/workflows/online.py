"""Requests of one workflow that arrive one after the other, and runs that join one dispatch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from weft_gateway.policies.batch_window import AHEAD, by_use
from weft_gateway.runs.flow_calls import RunCalls
from weft_gateway.runs.flow_wire import Ask

from weft_bench.workflows.dispatch import Free
from weft_bench.workflows.play import State
from weft_bench.workflows.tasks import Batch, Task
from weft_bench.workloads.streams import stream


def arrivals(batch: Batch, per_s: float, seed: int) -> list[float]:
    """Return the time at which the request of each row arrives, seconds: a Poisson process in which
    the rows come in random order, so that those with equal columns are not neighbours.
    """
    times = stream(seed, f"arrivals of {batch.name}")
    order = list(range(batch.rows))
    times.shuffle(order)
    found, now = [0.0] * batch.rows, 0.0
    for row in order:
        now += times.expovariate(per_s)
        found[row] = now
    return found


class Joined(Free):
    """Runs over HTTP as the gateway sends them: the calls of joined runs wait in one
    `weft_gateway.runs.flow_calls.RunCalls`, and a replica with credit takes the one that fits it
    best. slots: of each replica. begins: when the run of each row begins, seconds. join_s: a run
    joins the process that began at most this long before; 0: each run has its own calls.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        slots: Mapping[str, int],
        batch: Batch,
        begins: Sequence[float],
        join_s: float,
    ) -> None:
        super().__init__(tasks, list(slots), Random(0))
        self._batch = batch
        self._credit = {name: ceil(AHEAD * count) for name, count in slots.items()}
        self._order: dict[int, int] = {}
        self._of: dict[int, RunCalls] = {}
        self._sources: list[RunCalls] = []
        first_s = -1.0
        for place, row in enumerate(sorted(range(batch.rows), key=lambda row: begins[row])):
            if not self._sources or begins[row] - first_s >= join_s:
                first_s = begins[row]
                self._sources.append(RunCalls("", "", cast("Any", None), lambda answer: None))
            self._of[row], self._order[row] = self._sources[-1], place
        # The sender knows of a replica only its name and models.
        self._replicas: dict[str, Any] = {
            name: SimpleNamespace(name=name, served=()) for name in slots
        }
        self._able = list(self._replicas.values())

    def send(self, state: State, fresh: Sequence[int]) -> Iterable[tuple[int, str]]:
        """Queue fresh calls, then let each replica take calls while it has credit."""
        for number in fresh:
            task = self.tasks[number]
            calls = self._of[task.row]
            calls.ask(Ask(number, self._order[task.row], "", 1, b"", self._group(task.row)))
        for number in state.done:
            self._of[self.tasks[number].row].drop(number)
        used = {name: len(found) for name, found in state.in_flight.items()}
        while (taken := self._next(used)) is not None:
            used[taken[1]] += 1
            yield taken

    def _next(self, used: Mapping[str, int]) -> tuple[int, str] | None:
        """Return the next call and its replica, as `weft_gateway.runs.sender` finds them."""
        names, count = by_use(used, self._credit)
        near = [self._replicas[name] for name in names[:count]]
        for name in names:
            for calls in self._sources:
                number = calls.take(self._replicas[name], self._able, near, 0.0)
                if number is not None:
                    return number, name
        return None

    def _group(self, row: int) -> int:
        """Return the number that rows with a common beginning share, 0 for none."""
        known = "context" in self._batch.distinct
        return 1 + self._batch.value("context", row) if known else 0
