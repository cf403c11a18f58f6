"""Ways to dispatch the calls of a batch: the baselines of Helium's evaluation, and plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, cast

from weft_run.plan.prompts import Slot
from weft_run.plan.windows import Windows

from weft_bench.workflows.play import State, Warm
from weft_bench.workflows.tasks import Batch, Task, first_statics
from weft_bench.workloads.schema import Part

if TYPE_CHECKING:
    from weft_run.plan.frames import Unit


class Free:
    """Sends each call as soon as its inputs are there, in random order, to the replica with the
    fewest calls: LangGraph's batches behind a balancer by queue length.
    """

    def __init__(self, tasks: Sequence[Task], replicas: Sequence[str], rng: Random) -> None:
        self.tasks, self.replicas, self.rng = tasks, list(replicas), rng

    def warm(self) -> Iterable[Warm]:
        """Compute nothing ahead."""
        return ()

    def send(self, state: State, fresh: Sequence[int]) -> Iterable[tuple[int, str]]:
        """Send all fresh calls."""
        counts = {name: len(found) for name, found in state.in_flight.items()}
        order = list(fresh)
        self.rng.shuffle(order)
        for number in order:
            name = self.place(number, counts)
            counts[name] += 1
            yield number, name

    def place(self, number: int, counts: Mapping[str, int]) -> str:
        """Return the replica with the fewest calls."""
        return min(self.replicas, key=lambda name: counts[name])


class Supersteps(Free):
    """As `Free`, but the calls of a row go step by step, as LangGraph runs a graph: a step has the
    calls whose inputs the steps before have computed, and begins when all of the last one have
    ended. Rows do not wait for each other.
    """

    def __init__(self, tasks: Sequence[Task], replicas: Sequence[str], rng: Random) -> None:
        super().__init__(tasks, replicas, rng)
        self._step: list[int] = []
        # By row: the calls of each step that has not ended.
        self._open: dict[int, dict[int, set[int]]] = {}
        self._held: dict[int, list[int]] = {}
        for task in tasks:
            step = 1 + max((self._step[need] for need in task.needs), default=-1)
            self._step.append(step)
            self._open.setdefault(task.row, {}).setdefault(step, set()).add(task.number)

    def send(self, state: State, fresh: Sequence[int]) -> Iterable[tuple[int, str]]:
        """Send the calls of each row's step, and hold those of later steps."""
        for number in fresh:
            self._held.setdefault(self.tasks[number].row, []).append(number)
        begun: list[int] = []
        for row in list(self._held):
            steps = self._open[row]
            while steps[min(steps)] <= state.done:
                del steps[min(steps)]
            now = min(steps)
            begun += [one for one in self._held[row] if self._step[one] == now]
            self._held[row] = [one for one in self._held[row] if self._step[one] != now]
            if not self._held[row]:
                del self._held[row]
        return super().send(state, begun)


class Warmed(Free):
    """As `Free`, with the static prefixes sent to every replica before the first call, as KVFlow is
    measured. Its eviction by the steps until an agent's next call is not modelled.
    """

    def __init__(
        self, tasks: Sequence[Task], replicas: Sequence[str], rng: Random, batch: Batch
    ) -> None:
        super().__init__(tasks, replicas, rng)
        self._batch = batch

    def warm(self) -> Iterable[Warm]:
        """Send all static prefixes to all replicas."""
        return static_prefixes(self._batch, self.replicas)


def static_prefixes(batch: Batch, replicas: Sequence[str]) -> list[Warm]:
    """Return the static prefixes of all calls, on each replica."""
    tokens = {
        run.key: run.tokens for call in batch.calls for run in call.prompt if isinstance(run, Slot)
    }
    return [
        (replica, tuple(Part(name, tokens[name]) for name in names))
        for names in first_statics(batch.calls)
        for replica in replicas
    ]


class ByPrefix(Free):
    """As `Free`, but calls with one static prefix go to one replica: the one with the fewest calls
    when the first of them is sent (Parrot; Helium's appendix D names the imbalance that follows).
    If its slots are full, a call goes to a replica with fewer calls. heads: static prefixes that a
    cache can hold, as the names of their parts. slots: of a replica.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        replicas: Sequence[str],
        rng: Random,
        heads: frozenset[tuple[str, ...]],
        slots: int,
    ) -> None:
        super().__init__(tasks, replicas, rng)
        self._heads, self._slots = heads, slots
        self._homes: dict[tuple[str, ...], str] = {}

    def place(self, number: int, counts: Mapping[str, int]) -> str:
        """Return the replica of the prompt's prefix, or one with room."""
        least = super().place(number, counts)
        head = self._head(number)
        home = self._homes.setdefault(head, least) if head else least
        return home if counts[home] < self._slots else least

    def _head(self, number: int) -> tuple[str, ...]:
        """Return the longest static prefix of a prompt, empty for none."""
        names = tuple(part.name for part in self.tasks[number].parts)
        return next((names[:n] for n in range(len(names), 0, -1) if names[:n] in self._heads), ())


class InTurn(Free):
    """Sends one step after the other; a step begins when the last one has ended. steps: the tasks
    of each step, in order.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        replicas: Sequence[str],
        rng: Random,
        steps: Sequence[Sequence[int]],
    ) -> None:
        super().__init__(tasks, replicas, rng)
        self._steps = [list(step) for step in reversed(steps)]

    def send(self, state: State, fresh: Sequence[int]) -> Iterable[tuple[int, str]]:
        """Send the next step if nothing is in flight."""
        if any(state.in_flight.values()) or not self._steps:
            return ()
        return super().send(state, self._steps.pop())


class Batches(Free):
    """Runs queries that arrive in batches, each batch operator by operator: vLLM in topological
    order, as in Halo (section 4.3). A batch has all queries that have arrived, and begins when the
    last one has ended. operators: of a query.
    """

    def __init__(
        self, tasks: Sequence[Task], replicas: Sequence[str], rng: Random, operators: int
    ) -> None:
        super().__init__(tasks, replicas, rng)
        self._operators = operators
        self._waiting: dict[int, None] = {}
        self._steps: list[list[int]] = []

    def send(self, state: State, fresh: Sequence[int]) -> Iterable[tuple[int, str]]:
        """Send the next operator of the batch, or begin the next batch."""
        firsts = (self.tasks[number].row for number in fresh if not self.tasks[number].needs)
        self._waiting.update(dict.fromkeys(firsts))
        if any(state.in_flight.values()):
            return ()
        if not self._steps and self._waiting:
            rows, self._waiting = list(self._waiting), {}
            self._steps = [
                [row * self._operators + number for row in rows]
                for number in reversed(range(self._operators))
            ]
        return super().send(state, self._steps.pop()) if self._steps else ()


def query_wise(tasks: Sequence[Task]) -> list[list[int]]:
    """Return the steps of query-wise execution: one call each."""
    return [[task.number] for task in tasks]


def operator_wise(tasks: Sequence[Task], calls: int) -> list[list[int]]:
    """Return the steps of operator-wise execution: one operator each. calls: operators."""
    found: list[list[int]] = [[] for _ in range(calls)]
    for task in tasks:
        found[task.call].append(task.number)
    return found


class Longest(Free):
    """Keeps each engine's slots filled with the ready calls that share the longest prefix with
    calls sent there (longest shared prefix first, SGLang). window: calls at a replica at once.
    room: tokens of prompts that a replica is taken to remember.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        replicas: Sequence[str],
        rng: Random,
        window: int,
        room: int,
    ) -> None:
        super().__init__(tasks, replicas, rng)
        self._window, self._room = window, room
        self._known: dict[str, dict[tuple[str, ...], int]] = {name: {} for name in replicas}
        self._heads = [
            [tuple(part.name for part in task.parts[: n + 1]) for n in range(len(task.parts))]
            for task in tasks
        ]
        # The queue of each replica, as the balancer filled it.
        self._queues: dict[str, list[int]] = {name: [] for name in replicas}

    def send(self, state: State, fresh: Sequence[int]) -> Iterable[tuple[int, str]]:
        """Queue fresh calls at the shortest queue, then fill the windows."""
        counts = {n: len(state.in_flight[n]) + len(q) for n, q in self._queues.items()}
        order = list(fresh)
        self.rng.shuffle(order)
        for number in order:
            name = self.place(number, counts)
            counts[name] += 1
            self._queues[name].append(number)
        for name, queue in self._queues.items():
            free = self._window - len(state.in_flight[name])
            if free > 0 and queue:
                known = self._known[name]
                queue.sort(key=lambda number: -self._shared(number, known))
                for number in queue[:free]:
                    self._remember(name, number)
                    yield number, name
                del queue[:free]

    def _shared(self, number: int, known: Mapping[tuple[str, ...], int]) -> int:
        found = 0
        for head, part in zip(self._heads[number], self.tasks[number].parts, strict=True):
            if head not in known:
                break
            found += part.tokens
        return found

    def _remember(self, name: str, number: int) -> None:
        known = self._known[name]
        for head, part in zip(self._heads[number], self.tasks[number].parts, strict=True):
            known.pop(head, None)
            known[head] = part.tokens
        total = sum(known.values())
        while total > self._room:
            total -= known.pop(next(iter(known)))


class Planned(Free):
    """Follows a plan with the windows of production: each replica gets its calls in the order of
    their turns, at most `windows` at once. turn: returns the replica and the turn of an operator in
    a row. speeds: of the replicas; one without waiting calls gets those of another one, as in
    `weft run`. None: it gets none. prefixes: are sent first.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        windows: Mapping[str, int],
        turn: Callable[[int, int], tuple[str, int]],
        speeds: Mapping[str, float] | None,
        prefixes: Iterable[Warm] = (),
    ) -> None:
        super().__init__(tasks, list(windows), Random(0))
        self._turn, self._prefixes = turn, prefixes
        alone = [{name: count} for name, count in windows.items()]
        groups = alone if speeds is None else [windows]
        self._windows = [Windows(one, speeds=speeds) for one in groups]
        self._of = {name: at for at, one in zip(self._windows, groups, strict=True) for name in one}
        self._sent: dict[str, set[int]] = {name: set() for name in windows}

    def warm(self) -> Iterable[Warm]:
        """Send the prefixes."""
        return self._prefixes

    def send(self, state: State, fresh: Sequence[int]) -> Iterable[tuple[int, str]]:
        """Queue fresh calls by turn, then fill the windows."""
        for number in fresh:
            task = self.tasks[number]
            name, turn = self._turn(task.call, task.row)
            # The simulated call stands for the unit that a run would send.
            entry = ((turn,), task.row, (), number, cast("Unit", number))
            self._of[name].put(name, entry)
        for name, sent in self._sent.items():
            for _ in sent - state.in_flight[name]:
                self._of[name].give_back(name)
            sent &= state.in_flight[name]
        for windows in self._windows:
            while True:
                name, waiting, place = next(windows.sources(), ("", [], 0))
                if not waiting:
                    break
                number = waiting.pop(place)[3]
                windows.take(name)
                self._sent[name].add(number)
                yield number, name
