"""Plays a batch in virtual time on vLLM's scheduler: a dispatcher sends calls, engines answer."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from weft_engine.emulated.presets import EngineShape
from weft_engine.wire import CallContext

from weft_bench.virtual.engine import EngineSettings
from weft_bench.virtual.prompts import place
from weft_bench.virtual.replica import Replica
from weft_bench.workflows.tasks import Task
from weft_bench.workloads.schema import Part

_ENDS: Final = 0
_BEGINS: Final = 1
_ARRIVES: Final = 2
_PROGRAM: Final = "batch"


@dataclass(slots=True)
class State:
    """The state that a dispatcher sees. in_flight: the tasks at each replica. ready: tasks whose
    inputs are there and that were not sent, in the order in which they became ready.
    """

    now: float
    in_flight: dict[str, set[int]]
    ready: dict[int, None] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


# A replica, and the start of a prompt that it gets before all calls. Calls do not wait for it: vLLM
# shares the blocks of a prompt from the step in which it begins.
Warm = tuple[str, tuple[Part, ...]]


class Dispatcher(Protocol):
    """Decides which calls are sent, when and where."""

    def warm(self) -> Iterable[Warm]:
        """Return the prefixes to send before the first call."""
        ...

    def send(self, state: State, fresh: Sequence[int]) -> Iterable[tuple[int, str]]:
        """Return tasks to send now, with their replicas. fresh: tasks that became ready."""
        ...


@dataclass(frozen=True, slots=True)
class Played:
    """Figures of a batch. seconds: from its start to its last answer. hit_rate: cached share of all
    prompt tokens. prompt_tokens, fresh_tokens: of all calls and of prefixes that were sent before
    them; fresh ones were computed. shares: of the calls, by replica. latencies: of the rows, from
    their arrival to their last answer, seconds. batched: mean number of calls at the replicas.
    """

    seconds: float
    hit_rate: float
    prompt_tokens: int
    fresh_tokens: int
    preemptions: int
    shares: Mapping[str, float]
    latencies: Sequence[float]
    batched: float


def play(
    tasks: Sequence[Task],
    shapes: Sequence[EngineShape],
    dispatcher: Dispatcher,
    arrivals: Sequence[float] = (),
) -> Played:
    """Play a batch to its end. The engines serve first come, first served, with prefix caches.
    arrivals: of the rows, seconds; without them, all rows are there at the start.

    Raises RuntimeError if the dispatcher leaves calls unsent, or an engine's invariant fails;
    SimulationError for a call that no engine can hold.
    """
    return _Play(tasks, shapes, dispatcher, arrivals).run()


class _Play:
    def __init__(
        self,
        tasks: Sequence[Task],
        shapes: Sequence[EngineShape],
        dispatcher: Dispatcher,
        arrivals: Sequence[float],
    ) -> None:
        settings = EngineSettings(policy="fcfs", tags=False)
        self._tasks, self._dispatcher = tasks, dispatcher
        self._replicas = {
            f"replica-{n}": Replica(f"replica-{n}", shape, settings)
            for n, shape in enumerate(shapes)
        }
        self._missing = [len(task.needs) for task in tasks]
        self._followers: list[list[int]] = [[] for _ in tasks]
        for task in tasks:
            for need in task.needs:
                self._followers[need].append(task.number)
        self._state = State(0.0, {name: set() for name in self._replicas})
        self._events: list[tuple[float, int, int, str, int]] = []
        self._versions = dict.fromkeys(self._replicas, 0)
        self._order = 0
        self._calls: dict[str, int] = {}
        self._prompt = self._cached = self._preempted = 0
        self._served = dict.fromkeys(self._replicas, 0)
        rows = 1 + max((task.row for task in tasks), default=-1)
        self._arrivals = list(arrivals) or [0.0] * rows
        self._ended = [0.0] * rows
        self._begun: dict[str, float] = {}
        self._busy_s = 0.0

    def run(self) -> Played:
        for number, (name, parts) in enumerate(self._dispatcher.warm()):
            self._add(name, f"warm-{number}", parts, 1, f"answer/warm-{number}")
        first: dict[float, list[int]] = {}
        for task in self._tasks:
            if not task.needs:
                first.setdefault(self._arrivals[task.row], []).append(task.number)
        for at in sorted(first):
            self._order += 1
            heapq.heappush(self._events, (at, _ARRIVES, self._order, "", 0))
        while self._events:
            at, what, _, name, version = heapq.heappop(self._events)
            if what == _ARRIVES:
                self._state.now = at
                fresh = first.pop(at)
                self._state.ready.update(dict.fromkeys(fresh))
                self._send(fresh)
                continue
            if version != self._versions[name]:
                continue
            self._state.now = at
            replica = self._replicas[name]
            if what == _ENDS:
                self._end(replica)
            else:
                ends = replica.start(self._state.now)
                replica.started = []
                if ends is not None:
                    self._schedule(replica, _ENDS, ends)
        if len(self._state.done) < len(self._tasks):
            left = len(self._tasks) - len(self._state.done)
            raise RuntimeError(f"{left} calls of {len(self._tasks)} were never sent")
        broken = [text for replica in self._replicas.values() for text in replica.violations()]
        if broken:
            raise RuntimeError("; ".join(broken[:3]))
        return Played(
            self._state.now,
            self._cached / self._prompt,
            self._prompt,
            self._prompt - self._cached,
            self._preempted,
            {name: count / len(self._tasks) for name, count in self._served.items()},
            [end - begin for end, begin in zip(self._ended, self._arrivals, strict=True)],
            self._busy_s / self._state.now,
        )

    def _send(self, fresh: Sequence[int]) -> None:
        state = self._state
        for number, name in list(self._dispatcher.send(state, fresh)):
            del state.ready[number]
            state.in_flight[name].add(number)
            task = self._tasks[number]
            self._calls[task.name] = number
            self._served[name] += 1
            self._begun[task.name] = state.now
            self._add(name, task.name, task.parts, task.answer, task.text)

    def _add(self, name: str, call: str, parts: tuple[Part, ...], answer: int, text: str) -> None:
        replica, now = self._replicas[name], self._state.now
        context = CallContext(call, _PROGRAM, 0.0, 0.0, 0.0, 0.0)
        prompt = replica.prompt(call.partition("/")[2], parts)
        ends = replica.add(context, prompt, place(text), answer, now)
        if not replica.busy:
            self._schedule(replica, _BEGINS, now)
        elif ends is not None:
            self._schedule(replica, _ENDS, ends)

    def _end(self, replica: Replica) -> None:
        state = self._state
        fresh: list[int] = []
        for report in replica.finish(state.now).reports:
            self._prompt += report.prompt_tokens
            self._cached += report.cached_tokens
            self._preempted += report.preemptions
            number = self._calls.pop(report.call, None)
            if number is None:
                continue
            state.in_flight[replica.name].discard(number)
            state.done.add(number)
            self._ended[self._tasks[number].row] = state.now
            self._busy_s += state.now - self._begun.pop(report.call)
            for follower in self._followers[number]:
                self._missing[follower] -= 1
                if not self._missing[follower]:
                    state.ready[follower] = None
                    fresh.append(follower)
        self._send(fresh)
        self._schedule(replica, _BEGINS, state.now)

    def _schedule(self, replica: Replica, what: int, at: float) -> None:
        """Replace the next event of a replica."""
        self._versions[replica.name] += 1
        self._order += 1
        heapq.heappush(
            self._events, (at, what, self._order, replica.name, self._versions[replica.name])
        )
