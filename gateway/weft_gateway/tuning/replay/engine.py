"""A model of an engine: continuous batching with the costs that the engine fitted itself.

The order of waiting calls is that of production: `CallTable`, the order's ranks and its layer of
due calls. The model leaves out preemption, the admission of programs to the cache, evictions from
it, and tenants.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf, sqrt

from weft_engine.call_table import CallTable
from weft_engine.orders import Order
from weft_engine.rank_index import RankIndex
from weft_engine.wire import CallContext

from weft_gateway.policies.costs import StepCosts
from weft_gateway.tuning.replay.trace import ReplicaShape

_TENANT = ""


@dataclass(slots=True, eq=False)
class Job:
    """A call in an engine. uncached: prompt tokens to compute; output: at least one. left: of
    those to compute. number: of the call in its trace.
    """

    number: int
    name: str
    prompt: int
    uncached: int
    output: int
    arrived_s: float
    started_s: float = 0.0
    left: int = 0


@dataclass(slots=True)
class EngineModel:
    """One engine. At most one step, or one leap of several decode steps, is running."""

    shape: ReplicaShape
    order: Order
    table: CallTable = field(init=False)
    _costs: StepCosts = field(init=False)
    _waiting: RankIndex = field(init=False)
    _jobs: dict[str, Job] = field(default_factory=dict, init=False)
    _prefill: deque[Job] = field(default_factory=deque, init=False)
    # Decoding calls by the decode step that is their last.
    _decoding: list[tuple[int, int, Job]] = field(default_factory=list, init=False)
    _done_steps: int = field(default=0, init=False)
    # Tokens of context of decoding calls, and reserved tokens of all admitted calls.
    _context: int = field(default=0, init=False)
    _reserved: int = field(default=0, init=False)
    # The step or leap that runs: its begin, its decode steps, its prompt tokens.
    _begun_s: float = field(default=0.0, init=False)
    _leap: int = field(default=0, init=False)
    _chunk: int = field(default=0, init=False)
    _charges: bool = field(default=False, init=False)
    busy: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.table = CallTable(self.order)
        self._waiting = RankIndex(self.table.rank)
        self._costs = StepCosts(*self.shape.steps)
        # Otherwise no rank depends on the service of calls that run.
        self._charges = bool(self.order.ladder)

    def add(self, job: Job, context: CallContext, now: float) -> float | None:
        """A call arrives. Returns the new end of the running leap, None if it is unchanged."""
        self._jobs[job.name] = job
        self.table.arrive(job.name, context, now)
        self._waiting.add(job.name)
        if not self.busy or self._leap <= 1 or not self._may_admit():
            return None
        steps = self._steps_until(now - self._begun_s)
        if steps >= self._leap:
            return None
        self._leap = steps
        return self._begun_s + self._leap_s(steps)

    def begin(self, now: float) -> float | None:
        """Begin the next step or leap. Returns its end, None without work."""
        self._sort(now)
        self._admit(now)
        decoding = len(self._decoding)
        if not decoding and not self._prefill:
            return None
        self.busy, self._begun_s = True, now
        budget = max(1, self.shape.step_tokens - decoding)
        self._chunk = min(budget, sum(job.left for job in self._prefill))
        if self._prefill:
            self._leap = 1
            costs = self._costs
            arithmetic = self._chunk * costs.prefill_token_s + decoding * costs.decode_s
            context = self._context + sum(job.prompt - job.left for job in self._prefill)
            return (
                now
                + costs.step_s
                + max(costs.weights_s, arithmetic)
                + context * costs.context_token_s
            )
        self._leap = self._decoding[0][0] - self._done_steps
        rule = self.table.rule
        until = self.table.starves_at if rule is None else min(rule.next_at, self.table.starves_at)
        if until < inf and len(self._waiting) and self._may_admit():
            self._leap = min(self._leap, self._steps_until(until - now))
        return now + self._leap_s(self._leap)

    def finish(self, now: float) -> list[Job]:
        """End the step or leap. Returns the calls that have ended."""
        self.busy = False
        steps, decoding = self._leap, self._decoding
        if self._charges:
            tokens = {job.name: steps for _, _, job in decoding}
            tokens.update((job.name, min(job.left, self._chunk)) for job in self._prefill)
            self.table.serve(tokens, now - self._begun_s, now)
        self._done_steps += steps
        self._context += steps * len(decoding)
        chunk = self._chunk
        while self._prefill and chunk >= self._prefill[0].left:
            job = self._prefill.popleft()
            chunk -= job.left
            job.left = 0
            # Its last prompt token gives the first token of the answer.
            self._context += job.prompt + 1
            heappush(decoding, (self._done_steps + job.output - 1, job.number, job))
        if self._prefill:
            self._prefill[0].left -= chunk
        self._chunk = 0
        ended = []
        while decoding and decoding[0][0] <= self._done_steps:
            job = heappop(decoding)[2]
            self._context -= job.prompt + job.output
            self._reserved -= job.prompt + job.output
            del self._jobs[job.name]
            self.table.leave(job.name, now)
            ended.append(job)
        return ended

    def slots(self) -> int:
        """See weft_engine.reorder.SchedulerView."""
        return self.shape.slots

    def blocks_lacking(self) -> int:
        """See weft_engine.reorder.SchedulerView."""
        return 0

    # -- inside --------------------------------------------------------------------------------

    def _sort(self, now: float) -> None:
        table = self.table
        if table.starves_at <= now:
            table.promote(now)
        if table.rule is not None:
            if table.moved:
                self._waiting.invalidate(table.moved)
                table.moved.clear()
            table.rule.refresh(now, self)
        if table.moved:
            self._waiting.invalidate(table.moved)
            table.moved.clear()

    def _may_admit(self) -> bool:
        return len(self._decoding) + len(self._prefill) < self.shape.slots

    def _admit(self, now: float) -> None:
        budget = self.shape.step_tokens - len(self._decoding)
        budget -= sum(job.left for job in self._prefill)
        while budget > 0 and len(self._waiting) and self._may_admit():
            name = next(iter(self._waiting.ordered()))
            job = self._jobs[name]
            fits = self._reserved + job.prompt + job.output <= self.shape.kv_tokens
            if not fits and (self._decoding or self._prefill):
                return
            self._waiting.discard(name)
            self.table.start(name, now)
            job.started_s, job.left = now, job.uncached
            self._reserved += job.prompt + job.output
            self._prefill.append(job)
            budget -= job.left

    def _leap_s(self, steps: int) -> float:
        """Return the duration of decode steps from now on: the context grows with each of them."""
        base, growth = self._pace()
        return steps * base + growth * steps * (steps - 1)

    def _steps_until(self, seconds: float) -> int:
        """Return the number of decode steps after which this time has passed, at least 1."""
        base, growth = self._pace()
        # base k + growth k (k - 1) = seconds
        linear = base - growth
        if growth > 0:
            steps = (sqrt(linear * linear + 4 * growth * max(0.0, seconds)) - linear) / (2 * growth)
        else:
            steps = max(0.0, seconds) / base
        return max(1, ceil(steps - 1e-9))

    def _pace(self) -> tuple[float, float]:
        """Return the seconds of the next decode step, and half of what each step adds to it."""
        costs, count = self._costs, len(self._decoding)
        base = costs.step_s + max(costs.weights_s, count * costs.decode_s)
        return base + self._context * costs.context_token_s, count * costs.context_token_s / 2
