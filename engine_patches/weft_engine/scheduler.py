"""The engine's scheduler: programs ordered by attained service (Agentix Algorithm 1).

vLLM's own `schedule()` still does all batching, caching and allocation. Before a step this class
sorts the queues and takes victims out of the batch, where the ledger says that something has
moved; after it, it charges the step's duration to the calls that were in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from weft_engine.caches import Caches, told
from weft_engine.channel import Command, EngineChannel
from weft_engine.compat import Request, SchedulerHooks, SchedulerOutput, check_start
from weft_engine.displacing import Displacing
from weft_engine.ledger import Ledger
from weft_engine.orders import Order, build_order
from weft_engine.prefill_limits import PrefillPacing
from weft_engine.settings import PluginSettings
from weft_engine.swap.connector import SwapConnector
from weft_engine.turns import Turns
from weft_engine.warmth import Warmth
from weft_engine.wire import CallContext, CallReport

# Of several tenants' waiting sequences, so many more are put in order than slots are free, and so
# many at most.
_SPARE_TURNS: Final = 2
_MOST_TURNS: Final = 32
# And so many first of all for those who look at the cache.
_LOOKED_AT: Final = 8


class WeftScheduler(SchedulerHooks):
    """`--scheduler-cls weft_engine.scheduler.WeftScheduler`.

    Settings come from `--additional-config '{"weft": {...}}'` (PluginSettings). Greedy outputs
    are those of an engine without it: only the order of the work changes.
    """

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = PluginSettings.from_config(self.vllm_config.additional_config)
        check_start(self.vllm_config, self.settings.channel)
        self.ledger = Ledger(self._order(self.settings.policy))
        self._turns = Turns(self.ledger)
        self._displacing = Displacing(
            self, self.ledger, self._turns, self.settings.max_displacements
        )
        self._contended = False
        self._caches = Caches(self) if self.settings.tags and self.prefix_cached() else None
        self._swap = SwapConnector.among(self.connector, self.settings.swap_gib)
        self._warmth = self._see()
        self._sequences: dict[str, Request] = {}
        # Tokens that each preempted sequence had computed.
        self._lost: dict[str, int] = {}
        self._pacing = PrefillPacing(self.ledger.shares, self.block_size)
        # Of each step in flight, when it began and the prompt tokens that it computes.
        self._begun: dict[int, tuple[float, Mapping[str, int]]] = {}
        self._last_step_end = 0.0
        self._undecided = 0
        self._forgetting = False
        self._displacements = 0
        self._recomputed = 0
        self._advice: list[Command] = []
        self._channel = (
            EngineChannel(self.settings.channel, self.state, self._order)
            if self.settings.channel
            else None
        )

    # -- vLLM calls these ------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """A request arrives: find its call's account and let the order place it."""
        known = request.request_id in self._sequences
        super().add_request(request)
        if known:
            return
        context = CallContext.from_xargs(self.extra_args_of(request)) or CallContext(
            call=request.request_id, program=request.request_id
        )
        self._sequences[request.request_id] = request
        account = self.ledger.arrive(request.request_id, context, self.clock())
        account.tell(
            told(context)
            if self._caches is None
            else self._caches.take(context, request.num_prompt_tokens)
        )
        if self._warmth is not None:
            self._warmth.queued(request.request_id)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """One step: reorder and displace if it is time to, then vLLM's own scheduling."""
        now = self.clock()
        if self._channel is not None:
            for command in self._channel.take_commands():
                # While a step runs on the device there is time for advice when this one is out.
                later = command.kv and self._begun
                (self._advice.append if later else self.obey)(command)
        if self._forgetting:
            self._forget()
        if self._caches is not None:
            self._caches.expire(now)
        if self._undecided <= 0:
            self._decide(now)
            self._undecided = self.settings.decide_every
        self._undecided -= 1
        if self.ledger.shares.contended:
            self._choose_preempted()
        prefilling = self.prefilling()
        self._limit_prefill(prefilling)
        with self.admitting(None if self._warmth is None else self._warmth.admitting):
            output = super().schedule(*args, **kwargs)
        started = self.started(output)
        for sequence in started:
            self._start(sequence, output.num_scheduled_tokens.get(sequence, 0), now)
        self._begun[id(output)] = self.clock(), self.prefill_of(output, {*prefilling, *started})
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: Any
    ) -> Any:
        """A step has run: charge it, and report the calls that it finished."""
        now = self.clock()
        # With async scheduling steps overlap: one begins when the one before it has ended.
        begun, prefill = self._begun.pop(id(scheduler_output), (now, {}))
        duration_s = max(0.0, now - max(begun, self._last_step_end))
        self._last_step_end = now
        tokens = scheduler_output.num_scheduled_tokens
        self.ledger.serve(tokens, duration_s, now, prefill)
        if self._warmth is not None:
            computed = scheduler_output.total_num_scheduled_tokens
            self._warmth.served(computed, len(tokens), duration_s)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        for sequence in tokens:
            request = self._sequences.get(sequence)
            if request is not None and request.is_finished():
                self._leave(request, now)
        while self._advice:
            self.obey(self._advice.pop(0))
        return outputs

    def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
        """Requests are aborted from outside; what they have used still counts."""
        finished = super().finish_requests(*args, **kwargs)
        now = self.clock()
        for request in finished:
            self._leave(request, now)
        return finished

    def on_preempted(self, request: Request, computed: int) -> None:
        """A running request went back to the queue: it waits again, in its place."""
        self._lost[request.request_id] = computed
        self.ledger.preempt(request.request_id, self.clock())
        if self._warmth is not None:
            self._warmth.queued(request.request_id)

    def on_queued(self, request: Request) -> None:
        """A request is new in the waiting queue, or the next turn of one that vLLM knows."""
        self.ledger.moved.add(request.request_id)

    def on_freeing(self, request: Request) -> None:
        """What is known of the blocks is written down before they are free, and what a displaced
        request has computed is saved."""
        self._displacing.touch()
        account = self.ledger.of(request.request_id)
        if self._warmth is not None:
            if request.is_finished():
                # A call that is its own program is the last one of it.
                returns = account is not None and account.context.program != request.request_id
                keeps = returns and self._warmth.keep_s
                blocks = self.blocks_held_alone(request) if keeps else 0
                self._warmth.left(request.request_id, blocks, self.clock())
            else:
                self._warmth.freed()
        if self._swap is not None:
            if request.is_finished():
                self._swap.forget(request.request_id)
            else:
                saved = self._swap.save(request, self.blocks_of(request)[0])
                if account is not None:
                    account.blocks_swapped_out += saved
        if self._caches is not None and account is not None:
            account.tell(
                self._caches.note(
                    account.context,
                    self.blocks_of(request),
                    self.clock(),
                    prompt_tokens=request.num_prompt_tokens,
                    ended=request.is_finished(),
                )
            )

    def on_cache_emptied(self, entirely: bool) -> None:
        """What was displaced is forgotten with the cache: it was computed as what is gone, by the
        old weights maybe."""
        if self._swap is not None and entirely:
            self._swap.reset_cache()
        if self._warmth is not None and entirely:
            self._warmth.reset()
        if self._caches is not None:
            self._caches.retention.sweep()
            if entirely:
                self._caches.retention.reset()

    def shutdown(self) -> None:
        """Close the channel with the engine."""
        if self._channel is not None:
            self._channel.close()
        super().shutdown()

    # -- ours --------------------------------------------------------------------------------

    def obey(self, command: Command) -> None:
        """Carry out a command of the endpoint, between two steps."""
        if command.policy:
            self.ledger.switch(self._order(command.policy), self.clock())
            self._warmth = self._see()
        if command.reset_cache:
            self._forgetting = True
            self._forget()
        if command.kv and self._caches is not None:
            self._caches.obey(command, self.clock())
        if command.kv == "forget" and self._warmth is not None:
            self._warmth.ended(command.program)

    def state(self) -> dict[str, Any]:
        """What `GET /weft/state` shows; read from another thread, so counts only."""
        return {
            "policy": self.ledger.order.name,
            "running": len(self.running),
            "waiting": len(self.waiting),
            "waiting_by_queue": {str(q): n for q, n in self.ledger.waiting_by_queue().items()},
            "displacements": self._displacements,
            "recomputed_tokens": self._recomputed,
            "promotions": self.ledger.promotions,
            "demotions": self.ledger.demotions,
            "kv_usage": self.get_kv_cache_usage(),
            "cache_tokens": self.cache_tokens(),
            "swap": None if self._swap is None else self._swap.state(),
            "held_back": 0 if self._warmth is None else self._warmth.held,
            "kept_blocks": 0 if self._warmth is None else self._warmth.kept_blocks,
            "kv": None if self._caches is None else self._caches.retention.state(),
        }

    def cache_tokens(self) -> int:
        """What the prefix cache has room for, tokens; 0 where there is none."""
        return len(self.kv_blocks()) * self.block_size if self.prefix_cached() else 0

    def waiting_names(self) -> Iterable[str]:
        """Ids of the requests in the waiting queue, those that are next first."""
        if self._contended:
            self._turns.stir(self.ledger.moved)
            yield from self._turns.next(_LOOKED_AT, self.readiness())
        yield from super().waiting_names()

    def violations(self) -> list[str]:
        """What is inconsistent between vLLM's books and ours; empty if nothing is."""
        # Ended ones stay with vLLM until a connector has done with their blocks.
        alive = [name for name, request in self.requests.items() if not request.is_finished()]
        found = self.ledger.violations(alive)
        if self._caches is not None:
            found += self._caches.violations()
        if self._swap is not None:
            found += self._swap.violations()
        if self._warmth is not None:
            found += self._warmth.violations(self.waiting_names())
        strays = set(self._lost) - set(self._sequences)
        return [*found, f"lost tokens of {len(strays)} unknown sequences"] if strays else found

    def _forget(self) -> None:
        if self.forget_cache():
            self._forgetting = False

    def _order(self, name: str) -> Order:
        return build_order(name, self.settings.options)

    def _see(self) -> Warmth | None:
        """What looks at the cache for the order; None where it does not ask, or there is none."""
        if not (self.ledger.order.sees_cache and self.prefix_cached()):
            return None
        return Warmth(self, self.ledger, self.cache_tokens())

    def _decide(self, now: float) -> None:
        self.ledger.promote(now)
        self.ledger.refresh(now)
        contended = self.ledger.shares.contended
        if contended != self._contended:
            self._contended = contended
            self._turns.clear()
            self.keep_turns(contended)
            # The waiting queue was not kept in order.
            self.ledger.moved.update(self._sequences)
        if self._warmth is not None:
            self._warmth.look(now)
        self._sort()
        if contended:
            self._take_turns(now)
        elif self._may_displace():
            self._put_out(self._displacing.decide(), now)
            self._sort()

    def _may_displace(self) -> bool:
        if not (self.ledger.order.displaces and self.waiting and self.running and self.admits()):
            return False
        # Where somebody is held back for want of room, nobody is put out for a slot.
        return self._warmth is None or self._warmth.admitting is None

    def _sort(self) -> None:
        moved = self.ledger.moved
        if moved:
            self._displacing.touch()
            if self._contended:
                self._turns.stir(moved)
            self.sort_queues(self.ledger.rank, moved, waiting_too=not self._contended)
            moved.clear()

    def _take_turns(self, now: float) -> None:
        """Several tenants contend: room is made for those that run less than their share, and who
        is to be admitted next comes to the front of the queue."""
        if not (self.waiting and self.admits()):
            return
        coming: list[str] = []
        admitting = None if self._warmth is None else self._warmth.admitting
        if self.ledger.order.displaces and self.running and admitting != 0:
            victims, coming = self._displacing.decide_fairly()
            self._put_out(victims, now)
            self._sort()
        slots = self.free_slots() - len(coming)
        if slots > 0 or self.settings.decide_every > 1:
            count = min(max(0, slots) + _SPARE_TURNS * self.settings.decide_every, _MOST_TURNS)
            turns = self._turns.next(count + len(coming), self.readiness())
            coming += [name for name in turns if name not in coming]
        if coming:
            self.bring_forward(coming)

    def _choose_preempted(self) -> None:
        """Several tenants contend, and blocks may run out in this step: vLLM takes them from the
        last of the running requests, who are those of the tenants that run the most."""
        lacking = self.blocks_lacking()
        last = self._displacing.preempted_for(lacking) if lacking > 0 else []
        if last and self.put_last(last):
            # The list is in the order of ranks again when blocks suffice.
            self.ledger.moved.update(request.request_id for request in last)

    def _limit_prefill(self, prefilling: dict[str, int]) -> None:
        """Bound how much the prompts of one tenant lengthen the steps of others."""
        slots = self.free_slots() if self.waiting else 0
        self.prefill_limits = None
        if prefilling or slots:
            self.prefill_limits = self._pacing.limits(self.next_step(prefilling, slots))

    def _put_out(self, victims: Iterable[str], now: float) -> None:
        for sequence in victims:
            account = self.ledger.of(sequence)
            if account is not None:
                account.displaced += 1
            self._displacements += 1
            self.displace(self._sequences[sequence], now)

    def _start(self, sequence: str, scheduled: int, now: float) -> None:
        if self._warmth is not None:
            self._warmth.started(sequence)
        self.ledger.start(sequence, now)
        account, request = self.ledger.of(sequence), self._sequences.get(sequence)
        if account is None or request is None:
            return
        if self._swap is not None:
            account.blocks_swapped_in += self._swap.loaded.pop(sequence, 0)
        lost = self._lost.pop(sequence, None)
        if lost is None:
            account.cached_tokens += self.cached_tokens_of(request)
        else:
            resumed_at = int(request.num_computed_tokens) - scheduled
            recomputed = max(0, lost - resumed_at)
            account.recomputed_tokens += recomputed
            self._recomputed += recomputed

    def _leave(self, request: Request, now: float) -> None:
        sequence = request.request_id
        self._sequences.pop(sequence, None)
        self._lost.pop(sequence, None)
        account = self.ledger.of(sequence)
        if account is None:
            return
        if sequence in self.requests:
            # A connector still reads its blocks: when they are freed, the call is forgotten.
            self.on_freeing(request)
        account.prompt_tokens += request.num_prompt_tokens
        account.output_tokens += request.num_output_tokens
        if self.ledger.leave(sequence, now) is not None:
            self._send(account.report())

    def _send(self, report: CallReport) -> None:
        if self._channel is not None:
            self._channel.send_report(report)
