"""Prediction of a batch's time: continuous batching with an LRU prefix cache, in seconds. Pure.

Each replica runs the queued calls of the lowest turns, as many as its slots and its cache hold. All
running calls get one token a step. A step's time follows the replica's costs; prefill delays the
step beyond the time that reading the weights hides. Whole path pieces are cached and evicted.
Answers vary as their operators' do: calls of equal length would end together, and a replica would
serve one operator after another.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import exp, inf
from statistics import NormalDist
from typing import Final

from weft_run.plan.costs import Replica

from weft_bench.planner.problem import Operation, Rows

# The replica's number and the turn of an operator in a row.
Turn = Callable[[int, int], tuple[int, int]]

# Quantiles of the normal distribution, in an order in which neighbours are far apart. The first one
# is the median.
_DRAWS: Final = tuple(NormalDist().inv_cdf(((32 + 25 * n) % 64 + 0.5) / 64) for n in range(64))


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted course of a batch. seconds: to the last answer.
    prompt, cached: tokens of all prompts, and those from the cache. per_row_s: time that each
    further row takes once the replicas are busy.
    """

    seconds: float
    prompt: int
    cached: int
    per_row_s: float

    @property
    def hit_rate(self) -> float:
        """The cached share of all prompt tokens."""
        return self.cached / self.prompt if self.prompt else 0.0


@dataclass(slots=True, eq=False)
class _Engine:
    replica: Replica
    window: int
    now: float = 0.0
    # Steps so far, and the number of the step with which each running call ends.
    steps: float = 0.0
    running: list[tuple[float, int, int]] = field(default_factory=list)
    queue: list[tuple[int, int]] = field(default_factory=list)
    held: float = 0.0
    debt_s: float = 0.0
    step_s: float = 0.0
    # The cached pieces, the least recently used first.
    cache: dict[Hashable, int] = field(default_factory=dict)
    size: int = 0
    # Tokens of the prompts so far, and those from the cache.
    prompt: int = 0
    cached: int = 0

    def pace(self) -> None:
        """Set the time of a step with the running calls."""
        steps, count = self.replica.costs.steps, len(self.running)
        self.step_s = (
            steps.step_s
            + max(steps.weights_s, count * steps.decode_s)
            + self.held * steps.context_token_s
        ) or 1e-9

    def ends(self) -> float:
        """Return the time of the next answer."""
        if not self.running:
            return inf
        return self.now + self.debt_s + (self.running[0][0] - self.steps) * self.step_s

    def advance(self, now: float) -> None:
        """Run until an instant."""
        passed = now - self.now
        self.now = now
        if passed <= self.debt_s:
            self.debt_s -= passed
        elif self.running:
            self.steps += (passed - self.debt_s) / self.step_s
            self.debt_s = 0.0
        else:
            self.debt_s = 0.0

    def touch(self, keys: Sequence[tuple[Hashable, int]]) -> None:
        """Use pieces of a prompt, from its end to its start: the end is evicted first."""
        cache = self.cache
        for key, tokens in reversed(keys):
            if cache.pop(key, None) is None:
                self.size += tokens
            cache[key] = tokens
        room = self.replica.kv_tokens
        while self.size > room and cache:
            oldest = next(iter(cache))
            self.size -= cache.pop(oldest)


def predict(
    found: Sequence[Operation],
    rows: Rows,
    replicas: Sequence[Replica],
    turn: Turn,
    windows: Sequence[int],
    ranks: Sequence[int] | None = None,
) -> Prediction:
    """Play a batch. ranks: the rows to play; None for all.

    turn: as in `Turn`; a row's rank is its place in the plan's order. windows: calls that each
    replica gets at once. Calls that start together share prefixes, as in vLLM, which shares the
    blocks of a prompt from the step in which it begins. Time and memory are linear in calls and
    path lengths.
    """
    count = len(found)
    engines = [_Engine(one, max(1, w)) for one, w in zip(replicas, windows, strict=True)]
    followers: list[list[int]] = [[] for _ in found]
    for number, one in enumerate(found):
        for need in one.needs:
            followers[need].append(number)
    waits = [sum(found[need].copies for need in one.needs) for one in found]
    missing = [list(waits) for _ in range(rows.count)]
    times: list[float] = []
    woken: set[int] = set()

    def queue(number: int, row: int) -> None:
        at, when = turn(number, row)
        engine = engines[at]
        for copy in range(found[number].copies):
            heapq.heappush(engine.queue, (when, (row * count + number) * 16 + copy))
        woken.add(at)

    played = range(rows.count) if ranks is None else ranks
    for row in played:
        for number, one in enumerate(found):
            if not one.needs:
                queue(number, row)
    while True:
        for at in sorted(woken):
            _fill(engines[at], found, rows)
        woken.clear()
        at = min(range(len(engines)), key=lambda n: engines[n].ends())
        engine = engines[at]
        now = engine.ends()
        if now == inf:
            break
        engine.advance(now)
        _, task, size = heapq.heappop(engine.running)
        engine.held -= size
        row, number = divmod(task // 16, count)
        one = found[number]
        if one.trail:
            engine.touch(_keys(one, rows, row, task % 16, True))
        engine.pace()
        woken.add(at)
        times.append(now)
        for follower in followers[number]:
            missing[row][follower] -= 1
            if not missing[row][follower]:
                queue(follower, row)
        for other in woken:
            if other != at:
                engines[other].advance(max(engines[other].now, now))
    last = times[-1] if times else 0.0
    low, high = len(times) // 3, max(len(times) // 3 + 1, 2 * len(times) // 3)
    rate = (times[min(high, len(times) - 1)] - times[low]) / max(1, high - low) if times else 0.0
    return Prediction(
        last,
        sum(engine.prompt for engine in engines),
        sum(engine.cached for engine in engines),
        rate * len(times) / max(1, len(played)),
    )


def _fill(engine: _Engine, found: Sequence[Operation], rows: Rows) -> None:
    """Start the queued calls of the lowest turns, as many as fit."""
    room, most = engine.replica.kv_tokens, min(engine.window, engine.replica.slots)
    steps, started, count = engine.replica.costs.steps, 0, len(found)
    block = engine.replica.block
    while engine.queue and len(engine.running) < most:
        task = engine.queue[0][1]
        row, number = divmod(task // 16, count)
        one = found[number]
        answer = one.answer * exp(one.spread * (_DRAWS[task // 16 % 64] - one.spread / 2))
        size = round(one.prompt + answer)
        if engine.running and engine.held + size > room:
            break
        heapq.heappop(engine.queue)
        keys = _keys(one, rows, row, task % 16, False)
        hit, cache = 0, engine.cache
        for (key, _), piece in zip(keys, one.path, strict=True):
            if key not in cache:
                break
            hit = piece.end
        hit -= hit % block
        engine.touch(keys)
        engine.cached += hit
        engine.prompt += one.prompt
        started += one.prompt - hit
        engine.held += size
        heapq.heappush(engine.running, (engine.steps + answer, task, size))
    engine.pace()
    if started:
        hidden_s = max(0.0, steps.weights_s - len(engine.running) * steps.decode_s)
        engine.debt_s += max(0.0, started * steps.prefill_token_s - hidden_s)


def _keys(
    one: Operation, rows: Rows, row: int, copy: int, trail: bool
) -> list[tuple[Hashable, int]]:
    """Return the cache's keys of a prompt's pieces, or of those of the answer."""
    found: list[tuple[Hashable, int]] = []
    for piece in one.trail if trail else one.path:
        axes = piece.axes
        if not axes:
            found.append((piece.node, piece.tokens))
        elif copy and any(axis.startswith(("item of", "round of")) for axis in axes):
            found.append(((piece.node, rows.value(axes, row), copy), piece.tokens))
        else:
            found.append(((piece.node, rows.value(axes, row)), piece.tokens))
    return found
