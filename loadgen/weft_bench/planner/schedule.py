"""Helium's cache-aware scheduling (Algorithm 1) over an operator-level radix tree. Pure.

The recursion visits the tree depth first and chooses children by a critical-path heuristic: the
subtree with the greatest dependency depth that can start, then the earliest token step, then the
subtree with the fewest siblings before it. Calls that are emitted below one static prefix are
released together as an inner sequence. An inner sequence runs row by row, the outer sequence
operator by operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from weft_gateway.model.record import record

from weft_bench.planner.calls import PlannedCall
from weft_bench.planner.radix import Node, build_tree

# Per worker: sequences of calls. Each sequence runs row by row.
Nested = tuple[tuple[str, ...], ...]
# Calls that an engine batches, as vLLM does by default.
_BATCH: Final = 256


def usage(prefill: float, answer: float, alpha: float) -> float:
    """Return u, the token steps of a call: the tokens that it occupies, summed over its steps.

    prefill: u_p, its prompt tokens. alpha: 1 / KV tokens of the worker.
    """
    return alpha * (answer * prefill + answer * (answer + 1) / 2)


def delay(answer: float, alpha: float, kv_tokens: float) -> float:
    """Return d, the token steps between the end of a call and the start of one that needs it."""
    return alpha * kv_tokens * answer


@record
class Worker:
    """A worker of the token-step model. kv_tokens: M. alpha: 0 for 1 / M."""

    kv_tokens: float
    alpha: float = 0.0

    @property
    def rate(self) -> float:
        """The normalization constant, alpha."""
        return self.alpha or 1 / self.kv_tokens


@dataclass(slots=True, eq=False)
class _Branch:
    """A node of the scheduling tree. pending: calls that end here, each with the calls it still
    waits for. can_start, may_start: the greatest depth of a call below that can start now, and of
    one whose inputs are scheduled; -1 without one. step: the earliest token step of a call below.
    """

    worker: str
    slot: bool
    children: list[_Branch] = field(default_factory=list)
    pending: dict[str, set[str]] = field(default_factory=dict)
    # Siblings with calls that wait for calls below this node, by the call that they wait for.
    later: dict[str, set[_Branch]] = field(default_factory=dict)
    can_start: int = -1
    may_start: int = -1
    step: float = inf

    @property
    def empty(self) -> bool:
        return not self.pending and not self.children


def schedule(
    calls: Sequence[PlannedCall],
    workers: Mapping[str, Worker],
    assigned: Mapping[str, str] | None = None,
    rows: Mapping[str, int] | None = None,
) -> dict[str, Nested]:
    """Return the nested sequences of each worker.

    assigned: the worker of each call. Without it, Helium slices the rows evenly and replicates each
    operator on all workers; then all workers have the same sequences. rows: rows of a call on its
    worker. Raises ValueError for unknown workers.
    """
    if assigned is None:
        first = next(iter(workers))
        found = schedule(calls, workers, {call.name: first for call in calls}, rows)
        return dict.fromkeys(workers, found[first])
    return _Scheduling(calls, workers, assigned, rows or {}).run()


class _Scheduling:
    def __init__(
        self,
        calls: Sequence[PlannedCall],
        workers: Mapping[str, Worker],
        assigned: Mapping[str, str],
        rows: Mapping[str, int],
    ) -> None:
        unknown = sorted(set(assigned.values()) - workers.keys())
        if unknown:
            raise ValueError(f"unknown workers: {', '.join(unknown)}")
        self._workers, self._rows = workers, rows
        self._answers = {call.name: call.answer for call in calls}
        self._prompts = {call.name: call.prompt_tokens for call in calls}
        self._depths = depths(calls)
        self._ready: dict[str, float] = {}
        self._starts: dict[str, float] = {}
        self._released: dict[str, list[tuple[str, ...]]] = {name: [] for name in workers}
        self._emitted: list[tuple[str, str]] = []
        self._base = self._passed = 0.0
        tree = build_tree(calls, workers=assigned)
        self._needs = {call.name: set(call.needs) for call in calls}
        names = {one: assigned[one] for one in self._needs}
        self._root = self._build(tree.root, names)
        self._update(self._root)

    def run(self) -> dict[str, Nested]:
        """Schedule: recurse until no call is left, by force if a pass makes no progress."""
        while not self._recurse(self._root, False, False):
            self._recurse(self._root, False, True)
        self._release()
        return {name: tuple(found) for name, found in self._released.items()}

    @property
    def _now(self) -> float:
        return self._base + self._passed

    def _recurse(self, node: _Branch, by_row: bool, force: bool) -> bool:
        if node.pending:
            self._schedule_node(node, force)
        releases = not by_row
        by_row = by_row or node.slot
        while node.children:
            ready = [
                child
                for child in node.children
                if (child.may_start if force else child.can_start) >= 0
            ]
            if not ready:
                break
            chosen = self._select(ready, force)
            if self._recurse(chosen, by_row, force):
                node.children.remove(chosen)
            self._update_all(node.children)
            chosen.later = {
                name: found for name, found in chosen.later.items() if name not in self._ready
            }
            force = False
        if releases:
            self._release()
        return node.empty

    def _select(self, ready: Sequence[_Branch], force: bool) -> _Branch:
        if len(ready) == 1:
            return ready[0]
        order = _sibling_depths(ready)
        if force:
            return min(ready, key=lambda one: (one.step, -one.may_start, order[one]))
        return min(ready, key=lambda one: (-one.can_start, one.step, order[one]))

    def _schedule_node(self, node: _Branch, force: bool) -> None:
        """Schedule the calls of a leaf whose inputs are scheduled and whose delays have passed."""
        now = self._now
        ready = [name for name, waits in node.pending.items() if not waits - self._ready.keys()]
        if not force:
            ready = [name for name in ready if self._starts.get(name, 0.0) <= now]
        if force and ready:
            self._base = max(now, *(self._starts.get(name, 0.0) for name in ready))
            self._passed = 0.0
            now = self._base
        worker = self._workers[node.worker] if node.worker else next(iter(self._workers.values()))
        for name in ready:
            del node.pending[name]
            answer = self._answers[name]
            self._ready[name] = now + delay(answer, worker.rate, worker.kv_tokens)
            self._emitted.append((node.worker, name))
            self._passed += usage(self._prompts[name], answer, worker.rate)

    def _release(self) -> None:
        """Release the emitted calls as one inner sequence of each worker."""
        if not self._emitted:
            return
        by_worker: dict[str, list[str]] = {}
        for where, name in self._emitted:
            by_worker.setdefault(where, []).append(name)
        self._emitted = []
        for at, found in by_worker.items():
            worker = self._workers[at]
            self._released[at].append(tuple(found))
            rows = [self._rows.get(one, 1) for one in found]
            took = sum(
                usage(self._prompts[one], self._answers[one], worker.rate) * count
                for one, count in zip(found, rows, strict=True)
            )
            # A batch of many rows takes at least the decoding of its shortest answer.
            least = min(self._answers[one] for one in found)
            batches = sum(rows) // _BATCH
            self._base += max(took, batches * delay(least, worker.rate, worker.kv_tokens))
        self._passed = 0.0

    def _build(self, node: Node, assigned: Mapping[str, str]) -> _Branch:
        """Return the scheduling tree below a node. Calls that end at an inner node become leaves,
        as in the paper.
        """
        made: dict[int, _Branch] = {}
        order: list[Node] = []
        stack = [node]
        while stack:
            at = stack.pop()
            order.append(at)
            stack.extend(reversed(at.children.values()))
        below: dict[int, set[str]] = {}
        for at in reversed(order):
            children = [
                made[child.number] for child in at.children.values() if child.number in made
            ]
            children += [
                _Branch(assigned[name], False, pending={name: self._needs[name]})
                for name in at.leaves
            ]
            if not children and at is not node:
                continue
            branch = _Branch("", at.has_slot, children)
            if children and at is not node:
                branch.worker = children[0].worker
            names = [
                set(child.pending) if child.pending else below[id(child)] for child in children
            ]
            below[id(branch)] = set().union(*names)
            self._link(children, names)
            made[at.number] = branch
        return made[node.number]

    def _link(self, children: Sequence[_Branch], names: Sequence[set[str]]) -> None:
        """Record which siblings wait for which calls of a child."""
        owner = {
            name: child for child, found in zip(children, names, strict=True) for name in found
        }
        for child, found in zip(children, names, strict=True):
            for name in found:
                for need in self._needs[name]:
                    other = owner.get(need)
                    if other is not None and other is not child:
                        other.later.setdefault(need, set()).add(child)

    def _update_all(self, nodes: Iterable[_Branch]) -> None:
        for node in nodes:
            self._update(node)

    def _update(self, node: _Branch) -> None:
        """Set the state of a subtree at the present token step."""
        can = may = -1
        step = inf
        for name, waits in node.pending.items():
            done = waits & self._ready.keys()
            start = max([self._starts.get(name, 0.0), *(self._ready[one] for one in done)])
            self._starts[name] = start
            waits -= done
            if not waits:
                may = max(may, self._depths[name])
                step = min(step, start)
                if start <= self._now:
                    can = max(can, self._depths[name])
        for child in node.children:
            self._update(child)
            can, may = max(can, child.can_start), max(may, child.may_start)
            step = min(step, child.step)
        node.can_start, node.may_start, node.step = can, may, step


def depths(calls: Sequence[PlannedCall]) -> dict[str, int]:
    """Return the number of calls after each call on the longest chain of dependent calls."""
    found = {call.name: 0 for call in calls}
    for call in reversed(calls):
        for need in call.needs:
            found[need] = max(found[need], found[call.name] + 1)
    return found


def _sibling_depths(nodes: Sequence[_Branch]) -> dict[_Branch, int]:
    """Return the place of each node among its siblings: 0 if it waits for none of them. Siblings
    that wait for each other have the same place.
    """
    chosen = set(nodes)
    edges = {one: {other for s in one.later.values() for other in s} & chosen for one in nodes}
    if not any(edges.values()):
        return dict.fromkeys(nodes, 0)
    parts = _components(edges)
    part = {one: number for number, found in enumerate(parts) for one in found}
    place = [0] * len(parts)
    # Tarjan's algorithm returns components in reverse topological order.
    for number in range(len(parts) - 1, -1, -1):
        for one in parts[number]:
            for other in edges[one]:
                if part[other] != number:
                    place[part[other]] = max(place[part[other]], place[number] + 1)
    return {one: place[part[one]] for one in nodes}


def _components(edges: Mapping[_Branch, set[_Branch]]) -> list[list[_Branch]]:
    """Return the strongly connected components, each after those that it leads to (Tarjan)."""
    number: dict[_Branch, int] = {}
    low: dict[_Branch, int] = {}
    stack: list[_Branch] = []
    inside: set[_Branch] = set()
    found: list[list[_Branch]] = []

    def visit(node: _Branch) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        inside.add(node)
        for other in edges[node]:
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in inside:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            part = []
            while True:
                one = stack.pop()
                inside.remove(one)
                part.append(one)
                if one is node:
                    break
            found.append(part)

    for node in edges:
        if node not in number:
            visit(node)
    return found
