"""Placement of whole operators on workers that can load any model (Halo). Pure.

Here every worker may load every model, which takes time. Replicas whose models are fixed are placed
by `placing` instead. A stage is one operator on one or several workers; several divide the rows.
`finish_s` is the common measure: a stage begins when its inputs are complete and its workers are
free, and a worker loads another model first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, permutations
from typing import Final

from weft_gateway.model.record import record

Places = tuple[tuple[int, tuple[int, ...]], ...]
Placer = Callable[["Job", int], Places]


@record
class Node:
    """An operator. model: its name. seconds: of all rows on one worker. load_s: to load the model.
    needs: numbers of operators. reuse: gamma, factor on the seconds if the worker's last operator
    was one of its inputs with the same model, so that its KV is there.
    """

    model: str
    seconds: float
    load_s: float
    needs: tuple[int, ...] = ()
    reuse: float = 1.0


@record
class Job:
    """Operators in topological order. beta: k workers take 1 / k^beta of the seconds; at most 1."""

    nodes: tuple[Node, ...]
    beta: float = 0.9

    def checked(self) -> Job:
        """Return the job. Raises ValueError if an operator needs a later one."""
        for number, node in enumerate(self.nodes):
            for need in node.needs:
                if not 0 <= need < number:
                    raise ValueError(f"operator {number} must need earlier ones, not {need}")
        return self


@record
class State:
    """The workers after some stages. free_s: when each has ended its work. model, last: the loaded
    model and the last operator of each; "" and -1 at the start. done_s: when each placed operator
    ended.
    """

    free_s: tuple[float, ...]
    model: tuple[str, ...]
    last: tuple[int, ...]
    done_s: tuple[tuple[int, float], ...] = ()

    @classmethod
    def start(cls, workers: int) -> State:
        """Return idle workers without models."""
        return cls((0.0,) * workers, ("",) * workers, (-1,) * workers)

    def after(self, job: Job, number: int, workers: Sequence[int]) -> State:
        """Return the state after a stage."""
        node, done = job.nodes[number], dict(self.done_s)
        free, model, last = list(self.free_s), list(self.model), list(self.last)
        ready = max((done[need] for need in node.needs), default=0.0)
        end = 0.0
        for worker in workers:
            begin = free[worker] + (0.0 if model[worker] == node.model else node.load_s)
            near = model[worker] == node.model and last[worker] in node.needs
            took = node.seconds / len(workers) ** job.beta * (node.reuse if near else 1.0)
            free[worker] = max(begin, ready) + took
            model[worker], last[worker] = node.model, number
            end = max(end, free[worker])
        done[number] = end
        return State(tuple(free), tuple(model), tuple(last), tuple(sorted(done.items())))


def finish_s(job: Job, workers: int, places: Places) -> float:
    """Return the time at which the last operator of a placement ends. Raises ValueError unless each
    operator is placed once, after its inputs, on known workers.
    """
    if sorted(number for number, _ in places) != list(range(len(job.nodes))):
        raise ValueError("a placement must have each operator once")
    state, done = State.start(workers), set[int]()
    for number, here in places:
        if not here or not set(here) <= set(range(workers)):
            raise ValueError(f"operator {number} has workers {here}, known are 0 to {workers - 1}")
        if not done.issuperset(job.nodes[number].needs):
            raise ValueError(f"operator {number} is placed before its inputs")
        done.add(number)
        state = state.after(job, number, here)
    return max(state.free_s)


def round_robin(job: Job, workers: int) -> Places:
    """Each operator on the next worker (Table 4, RR)."""
    return tuple((number, (number % workers,)) for number in range(len(job.nodes)))


def co_locate(job: Job, workers: int) -> Places:
    """Each operator on the worker of an input, unless a sibling took it; others in turn (CoLoc)."""
    taken: set[tuple[int, int]] = set()
    place: list[int] = []
    turn = 0
    for node in job.nodes:
        free = [need for need in node.needs if (need, place[need]) not in taken]
        if free:
            chosen = place[free[0]]
            taken.add((free[0], chosen))
        else:
            chosen = turn % workers
            turn += 1
        place.append(chosen)
    return tuple((number, (at,)) for number, at in enumerate(place))


def data_parallel(job: Job, workers: int) -> Places:
    """Each operator on all workers, which divide its rows (DP)."""
    everyone = tuple(range(workers))
    return tuple((number, everyone) for number in range(len(job.nodes)))


# Workers' permutations grow fast; the paper caps a round at as many operators as workers.
_WIDTH: Final = 8


def beam(job: Job, workers: int, width: int = _WIDTH) -> Places:
    """Halo's beam search (v1, Algorithm 1).

    Each round takes the ready operators with the highest out-degree, as many as workers, and
    assigns them to workers in all ways. If fewer are ready than workers, they are replicated. Cost:
    C_a, the greatest sum of stage times of a worker, plus C_r, the remaining seconds divided by
    workers^beta. Waiting for inputs has no cost in this model.
    """
    followers = [0] * len(job.nodes)
    for node in job.nodes:
        for need in node.needs:
            followers[need] += 1
    beams: list[tuple[float, Places, State]] = [(0.0, (), State.start(workers))]
    while any(len(one[1]) < len(job.nodes) for one in beams):
        grown: list[tuple[float, Places, State]] = []
        for cost, places, state in beams:
            done = {number for number, _ in places}
            ready = [
                number
                for number, node in enumerate(job.nodes)
                if number not in done and done.issuperset(node.needs)
            ]
            if not ready:
                grown.append((cost, places, state))
                continue
            ready.sort(key=lambda number: (-followers[number], number))
            for chosen in _assigned(ready[:workers], workers):
                after = state
                for number, here in chosen:
                    after = _without_waits(after, job, number, here)
                left = sum(
                    node.seconds
                    for number, node in enumerate(job.nodes)
                    if number not in done and number not in dict(chosen)
                )
                total = max(after.free_s) + left / workers**job.beta
                grown.append((total, places + chosen, after))
        grown.sort(key=lambda one: (one[0], one[1]))
        beams = grown[:width]
    return beams[0][1]


def _assigned(ready: Sequence[int], workers: int) -> Iterator[Places]:
    """Yield the assignments of a round. Fewer operators than workers are replicated."""
    if len(ready) >= workers:
        for order in permutations(range(workers)):
            yield tuple((number, (at,)) for number, at in zip(ready, order, strict=True))
        return
    copies = [ready[n % len(ready)] for n in range(workers)]
    seen = set()
    for order in permutations(range(workers)):
        here: dict[int, list[int]] = {}
        for number, at in zip(copies, order, strict=True):
            here.setdefault(number, []).append(at)
        found = tuple((number, tuple(sorted(at))) for number, at in here.items())
        if found not in seen:
            seen.add(found)
            yield found
    for order in permutations(range(workers), len(ready)):
        yield tuple((number, (at,)) for number, at in zip(ready, order, strict=True))


def _without_waits(state: State, job: Job, number: int, here: Sequence[int]) -> State:
    """Return the state after a stage that needs no inputs: C_a counts work only."""
    node = job.nodes[number]
    bare = State(state.free_s, state.model, state.last, tuple((need, 0.0) for need in node.needs))
    after = bare.after(job, number, here)
    return State(after.free_s, after.model, after.last)


def dynamic(job: Job, workers: int, most: float = 0.9, penalty: float = 0.0) -> Places:
    """Halo's dynamic programming over epochs (as released for v2).

    State: the operators that are done, and model and last operator of each worker. An epoch places
    up to one ready operator on each worker; its cost is `most` times the greatest stage time plus
    (1 - most) times their sum plus `penalty`. Workers are alike, so states are equal up to a
    permutation. Exponential in the number of operators: for graphs of at most about 14.
    """
    count = len(job.nodes)

    @cache
    def best(done: int, held: tuple[tuple[str, int], ...]) -> tuple[float, tuple[Places, ...]]:
        if done == (1 << count) - 1:
            return 0.0, ()
        ready = [
            n
            for n, node in enumerate(job.nodes)
            if not done >> n & 1 and all(done >> need & 1 for need in node.needs)
        ]
        found: tuple[float, tuple[Places, ...]] | None = None
        for size in range(1, min(workers, len(ready)) + 1):
            for batch in combinations(ready, size):
                for order in permutations(range(workers), size):
                    chosen = tuple((n, (at,)) for n, at in zip(batch, order, strict=True))
                    state = State(
                        (0.0,) * workers,
                        tuple(model for model, _ in held),
                        tuple(last for _, last in held),
                    )
                    for n, here in chosen:
                        state = _without_waits(state, job, n, here)
                    cost = most * max(state.free_s) + (1 - most) * sum(state.free_s) + penalty
                    after = done | sum(1 << n for n, _ in chosen)
                    kept = list(zip(state.model, state.last, strict=True))
                    names = sorted(range(workers), key=lambda at: (kept[at], at))
                    rest_s, rest = best(after, tuple(kept[at] for at in names))
                    if found is None or cost + rest_s < found[0] - 1e-12:
                        # The later epochs name workers by their place in the sorted state.
                        later = tuple(
                            tuple((n, tuple(names[at] for at in here)) for n, here in epoch)
                            for epoch in rest
                        )
                        found = cost + rest_s, (chosen, *later)
        assert found is not None
        return found

    epochs = best(0, (("", -1),) * workers)[1]
    return tuple(stage for epoch in epochs for stage in epoch)


PLACERS: Final[Mapping[str, Placer]] = {
    "round robin": round_robin,
    "co-located": co_locate,
    "data parallel": data_parallel,
    "beam": beam,
    "dynamic": dynamic,
}
