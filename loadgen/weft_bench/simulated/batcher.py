"""A small batcher: continuous batching in the standard library, ordered as in production.

The plugin's call table, orders and choice of victims decide on order, demotion, promotion and
preemption (Agentix Algorithm 1). This module replaces the rest of vLLM's scheduler: slots, a token
budget per step, chunked prefill, KV blocks with prefix caching, and preemption when blocks run out.
Pure: the caller passes the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from weft_engine.cache_affinity import CacheAffinity, ContextSnapshot
from weft_engine.call_table import CallTable
from weft_engine.kv_command import KvCommand
from weft_engine.orders import build_order
from weft_engine.reservations import Chain
from weft_engine.wire import CallReport

from weft_bench.costs.presets import EngineShape
from weft_bench.simulated.blocks import BlockPool
from weft_bench.simulated.engine import Happened, Work
from weft_bench.simulated.preemption import CallSequence, choose_preempted
from weft_bench.simulated.tokens import block_hashes


class Batcher:
    """One engine with one order.

    options: of the orders, as the plugin takes them. Raises ValueError for an unknown order or
    invalid options.
    """

    def __init__(self, shape: EngineShape, policy: str, options: Mapping[str, Any]) -> None:
        self._shape = shape
        self._options = options
        self._pool = BlockPool(shape.kv_blocks)
        self._ledger = CallTable(build_order(policy, options))
        self._sequences: dict[str, CallSequence] = {}
        self._waiting: list[CallSequence] = []
        self._running: list[CallSequence] = []
        self._affinity = self._see()
        # Tokens that the current step computes for each sequence, and its number of steps.
        self._scheduled: dict[str, int] = {}
        self._steps = 0
        self._begun = 0.0
        self._calm = False
        self._preempted_for_waiting = 0
        self._recomputed = 0

    @property
    def busy(self) -> bool:
        """Whether a step is in progress."""
        return self._steps > 0

    def fits(self, tokens: int) -> bool:
        """See Engine."""
        return tokens <= min(self._shape.context, self._shape.kv_blocks * self._shape.block_tokens)

    def add(self, work: Work, now: float) -> None:
        """See Engine."""
        name = work.context.call
        hashes = block_hashes(work.text, self._shape.block_tokens)
        sequence = CallSequence(name, work, hashes)
        self._sequences[name] = sequence
        self._waiting.append(sequence)
        self._ledger.arrive(name, work.context, now)
        if self._affinity is not None:
            self._affinity.queued(name)
        self._calm = False

    def start(self, now: float, until: float) -> float | None:
        """See Engine."""
        if not self._sequences:
            return None
        self._begun = now
        leap = self._leap(now, until) if self._calm else None
        if leap is not None:
            return leap
        self._decide(now)
        self._steps = 1
        prefill, decode, context = self._fill(now)
        self._calm = not prefill and len(self._scheduled) == len(self._running)
        return now + self._shape.cost.step(prefill, decode, context)

    def finish(self, now: float) -> Happened:
        """See Engine."""
        scheduled, self._scheduled = self._scheduled, {}
        steps, self._steps = self._steps, 0
        duration_s = max(0.0, now - self._begun)
        self._ledger.serve(scheduled, duration_s, now)
        if self._affinity is not None:
            tokens = sum(scheduled.values()) // max(1, steps)
            self._affinity.served(tokens, len(scheduled), duration_s / max(1, steps))
        happened = Happened()
        ended: list[CallSequence] = []
        for name, count in scheduled.items():
            sequence = self._sequences[name]
            self._compute(sequence, count)
            if sequence.computed < sequence.length:
                continue
            sequence.generated += steps
            happened.tokens[name] = steps
            if sequence.generated == sequence.work.output_tokens:
                ended.append(sequence)
        if ended:
            happened.reports = [self._leave(sequence, now) for sequence in ended]
        return happened

    def abort(self, call: str, now: float) -> CallReport | None:
        """See Engine."""
        sequence = self._sequences.get(call)
        return None if sequence is None else self._leave(sequence, now)

    def check(self, policy: str) -> None:
        """See Engine."""
        build_order(policy, self._options)

    def switch(self, policy: str, now: float) -> None:
        """See Engine."""
        self._ledger.switch(build_order(policy, self._options), now)
        self._affinity = self._see()
        self._calm = False

    def reset_cache(self) -> None:
        """See Engine."""
        self._pool.reset()
        if self._affinity is not None:
            self._affinity.reset()

    def advise(self, advice: KvCommand) -> None:
        """Ignore the advice: eviction depends on recent use alone."""

    def state(self) -> dict[str, Any]:
        """See Engine."""
        ledger = self._ledger
        return {
            "policy": ledger.order.name,
            "running": len(self._running),
            "waiting": len(self._waiting),
            "waiting_by_queue": {str(q): n for q, n in ledger.waiting_by_queue().items()},
            "displacements": self._preempted_for_waiting,
            "recomputed_tokens": self._recomputed,
            "promotions": ledger.promotions,
            "demotions": ledger.demotions,
            "kv_usage": 1 - self._pool.free / self._pool.count,
            "cache_tokens": self._pool.count * self._shape.block_tokens,
            "swap": None,
            "kv": None,
        }

    def violations(self) -> list[str]:
        """See Engine."""
        found = self._ledger.violations(self._sequences)
        found += self._pool.violations([s.blocks for s in self._running])
        if any(sequence.blocks for sequence in self._waiting):
            found.append("a waiting sequence has blocks")
        names = [s.name for s in [*self._waiting, *self._running]]
        if sorted(names) != sorted(self._sequences):
            found.append("queues and calls differ")
        if len(self._running) > self._shape.slots:
            found.append("more sequences run than slots exist")
        return found

    # -- the cache as an order sees it ----------------------------------------------------------

    def waiting_names(self) -> Iterable[str]:
        """See Cache."""
        return (sequence.name for sequence in self._waiting)

    def waiting_count(self) -> int:
        """See Cache."""
        return len(self._waiting)

    def running_count(self) -> int:
        """See Cache."""
        return len(self._running)

    def free_blocks(self) -> int:
        """See Cache."""
        return self._pool.free

    def context_snapshot(self, sequence: str) -> ContextSnapshot:
        """See Cache."""
        known = self._sequences[sequence]
        cached = len(self._cached(known)) * self._shape.block_tokens
        return ContextSnapshot(cached, known.length - cached, self._wants(known))

    def chain_of(self, sequence: str) -> Chain:
        """See Cache."""
        known = self._sequences[sequence]
        return known.hashes[: known.length // self._shape.block_tokens]

    def still_cached(self, sequence: str, tokens: int) -> bool:
        """See Cache."""
        return self.context_snapshot(sequence).cached == tokens

    def _see(self) -> CacheAffinity | None:
        if not self._ledger.order.cache_aware:
            return None
        tokens = self._shape.kv_blocks * self._shape.block_tokens
        return CacheAffinity(self, self._ledger, tokens)

    # -- the sequences of a step ----------------------------------------------------------------

    def _decide(self, now: float) -> None:
        self._ledger.promote(now)
        self._ledger.refresh(now)
        if self._affinity is not None:
            self._affinity.refresh(now)
        self._sort()
        crowded = self._affinity is not None and self._affinity.admitting is not None
        if self._ledger.order.preempts and self._waiting and self._running and not crowded:
            self._preempt_for_waiting(now)
            self._sort()

    def _sort(self) -> None:
        if self._ledger.moved:
            rank = self._ledger.rank
            self._waiting.sort(key=lambda s: rank(s.name))
            self._running.sort(key=lambda s: rank(s.name))
            self._ledger.moved.clear()

    def _preempt_for_waiting(self, now: float) -> None:
        for name in choose_preempted(
            self._waiting,
            self._running,
            self._ledger,
            wants=self._wants,
            slots=self._shape.slots - len(self._running),
            free_blocks=self._pool.free,
            block_tokens=self._shape.block_tokens,
        ):
            account = self._ledger.of(name)
            if account is not None:
                account.displaced += 1
            self._preempted_for_waiting += 1
            self._preempt(self._sequences[name], now)

    def _wants(self, sequence: CallSequence) -> int:
        """Return the free blocks that the whole of a waiting sequence would take."""
        known = self._cached(sequence)
        missing = -(-sequence.length // self._shape.block_tokens) - len(known)
        return missing + self._pool.unused(known)

    def _preempt(self, sequence: CallSequence, now: float) -> None:
        self._running.remove(sequence)
        self._scheduled.pop(sequence.name, None)
        self._pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.lost, sequence.computed = sequence.computed, 0
        self._waiting.insert(0, sequence)
        self._ledger.preempt(sequence.name, now)
        if self._affinity is not None:
            self._affinity.queued(sequence.name)

    # -- the tokens of a step -------------------------------------------------------------------

    def _fill(self, now: float) -> tuple[int, int, int]:
        """Fill the step with running sequences, then waiting ones.

        Returns prompt tokens, decoding sequences and context tokens, as the cost model counts them.
        """
        budget = self._shape.step_tokens
        preempted = False
        at = 0
        while at < len(self._running) and budget:
            sequence = self._running[at]
            count = min(budget, sequence.length - sequence.computed)
            while not self._grow(sequence, count):
                victim = self._running[-1]
                budget += self._scheduled.get(victim.name, 0)
                self._preempt(victim, now)
                preempted = True
                if victim is sequence:
                    break
            else:
                self._scheduled[sequence.name] = count
                budget -= count
            at += 1
        if not preempted:
            self._admit(budget, now)
        prefill = decode = context = 0
        for name, count in self._scheduled.items():
            sequence = self._sequences[name]
            context += sequence.computed
            if count == 1 and sequence.generated:
                decode += 1
            else:
                prefill += count
        return prefill, decode, context

    def _admit(self, budget: int, now: float) -> None:
        admitted = 0
        limit = len(self._waiting) if self._affinity is None else self._affinity.admitting
        for sequence in self._waiting[:limit]:
            if not budget or len(self._running) >= self._shape.slots:
                break
            known = self._cached(sequence)
            reach = len(known) * self._shape.block_tokens
            count = min(budget, sequence.length - reach)
            blocks = -(-(reach + count) // self._shape.block_tokens) - len(known)
            if blocks + self._pool.unused(known) > self._pool.free:
                break
            self._pool.share(known)
            sequence.blocks = known + self._pool.take(blocks)
            sequence.computed = reach
            self._running.append(sequence)
            self._scheduled[sequence.name] = count
            budget -= count
            admitted += 1
            self._started(sequence, now)
        del self._waiting[:admitted]

    def _started(self, sequence: CallSequence, now: float) -> None:
        if self._affinity is not None:
            self._affinity.started(sequence.name)
        self._ledger.start(sequence.name, now)
        account = self._ledger.of(sequence.name)
        if account is None:
            return
        if sequence.lost is None:
            account.cached_tokens += sequence.computed
        else:
            recomputed = max(0, sequence.lost - sequence.computed)
            account.recomputed_tokens += recomputed
            self._recomputed += recomputed
            sequence.lost = None

    def _cached(self, sequence: CallSequence) -> list[int]:
        # The last token is always computed: the next token depends on it.
        size = self._shape.block_tokens
        return self._pool.find(sequence.hashes[: (sequence.length - 1) // size])

    def _grow(self, sequence: CallSequence, count: int) -> bool:
        """Take blocks for `count` more tokens. Returns False if too few are free."""
        missing = -(-(sequence.computed + count) // self._shape.block_tokens) - len(sequence.blocks)
        if missing > self._pool.free:
            return False
        if missing > 0:
            sequence.blocks += self._pool.take(missing)
        return True

    def _compute(self, sequence: CallSequence, count: int) -> None:
        size = self._shape.block_tokens
        before, sequence.computed = sequence.computed // size, sequence.computed + count
        for number in range(before, sequence.computed // size):
            self._pool.hold(sequence.blocks[number], sequence.hashes[number])

    def _leap(self, now: float, until: float) -> float | None:
        """Run all steps until the next possible change as one. Returns their end, or None.

        Requires that all sequences decoded in the last step and that the batch has not changed.
        """
        ledger, running = self._ledger, self._running
        due = min(ledger.starves_at, self._affinity.due if self._affinity else math.inf)
        if ledger.moved or ledger.order.rank_changes or due <= now:
            return None
        steps = min(s.work.output_tokens - s.generated for s in running)
        count, context = len(running), sum(s.computed for s in running)
        cost = self._shape.cost.step
        quantum = min(a.quantum_left_s for s in running if (a := ledger.of(s.name)) is not None)
        room = min(until - now, quantum, due - now)
        if math.isfinite(room):
            # The last step costs the most, so this bound never goes too far.
            steps = min(steps, int(room / cost(0, count, context + steps * count)))
        while steps > 1 and self._lacks(steps) > self._pool.free:
            steps //= 2
        if steps < 2:
            return None
        for sequence in running:
            self._grow(sequence, steps)
            self._scheduled[sequence.name] = steps
        self._steps = steps
        # Costs grow linearly, so the mean is the cost of the middle step.
        return now + steps * cost(0, count, context + count * (steps - 1) // 2)

    def _lacks(self, steps: int) -> int:
        size = self._shape.block_tokens
        return sum(-(-(s.computed + steps) // size) - len(s.blocks) for s in self._running)

    def _leave(self, sequence: CallSequence, now: float) -> CallReport:
        (self._running if sequence.blocks else self._waiting).remove(sequence)
        if self._affinity is not None:
            self._affinity.left(sequence.name, self._pool.alone(sequence.blocks), now)
        del self._sequences[sequence.name]
        self._pool.release(sequence.blocks)
        self._calm = False
        account = self._ledger.leave(sequence.name, now)
        assert account is not None, "each sequence is one call"
        account.prompt_tokens += sequence.work.prompt_tokens
        account.output_tokens += sequence.generated
        return account.report()
