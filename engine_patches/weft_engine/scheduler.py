"""The scheduler plugin: calls in the order of their programs.

vLLM's own `schedule()` still does all batching, caching and allocation. Before a step, this class
sorts the queues and preempts running requests if something has changed. After a step, it charges
the step's duration to the calls in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from weft_engine.call_state import CallState
from weft_engine.call_table import CallTable
from weft_engine.compat import Request, SchedulerHooks, SchedulerOutput, check_start
from weft_engine.decisions import Decisions
from weft_engine.engine_link import Command, EngineLink
from weft_engine.eviction_adapter import EvictionAdapter, told
from weft_engine.loads import Loads
from weft_engine.orders import build_order
from weft_engine.prefill_limits import PrefillPacing
from weft_engine.prompt_budget import PromptBudgets
from weft_engine.residents import Residents
from weft_engine.settings import PluginSettings
from weft_engine.short_calls import ShortCalls
from weft_engine.step_fit import StepMeter
from weft_engine.steps import StepsInFlight
from weft_engine.swap.connector import SwapConnector
from weft_engine.wire import MAX_PROGRAM, CallContext, CallReport


class WeftScheduler(SchedulerHooks):
    """`--scheduler-cls weft_engine.scheduler.WeftScheduler`.

    Settings come from `--additional-config '{"weft": {...}}'` (PluginSettings). Greedy outputs
    equal those of stock vLLM: only the order of the work changes.
    """

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = PluginSettings.from_config(self.vllm_config.additional_config)
        check_start(self.vllm_config, self.settings.channel)
        self.options = self.settings.options
        self.calls = CallTable(build_order(self.settings.policy, self.options))
        step = self.next_step({}, self.free_slots())
        self._short = ShortCalls(self.calls.shares.cost, step.slots, step.longest)
        self._decisions = Decisions(self, self.calls, self.settings, self._short)
        self._eviction = (
            EvictionAdapter(self) if self.settings.tags and self.prefix_cached() else None
        )
        self._swap = SwapConnector.among(self.connector, self.settings.swap_gib)
        self._meter = StepMeter()
        self._residents = self._decisions.residents = self._new_residents()
        self._sequences: dict[str, Request] = {}
        # Finished requests whose report is still to be sent.
        self._finished: list[Request] = []
        self._loads = Loads(self)
        # The tokens that each preempted sequence had computed.
        self._lost: dict[str, int] = {}
        shares = self.calls.shares
        self._budgets = PromptBudgets(
            shares.cost, self._meter, self._short, PrefillPacing(shares, self.block_size)
        )
        self._steps = StepsInFlight()
        self._forgetting = False
        self._recomputed = 0
        self._kv_commands: list[Command] = []
        channel = self.settings.channel
        self._link = EngineLink(channel, self.state, self._validated) if channel else None

    def add_request(self, request: Request) -> None:
        """A request arrives: add it to its call and let the order place it."""
        known = request.request_id in self._sequences
        super().add_request(request)
        if known:
            return
        context = CallContext.from_xargs(self.extra_args_of(request)) or CallContext(
            call=request.request_id, program=request.request_id
        )
        self._sequences[request.request_id] = request
        call = self.calls.arrive(request.request_id, context, self.clock())
        call.add_hints(
            told(context)
            if self._eviction is None
            else self._eviction.take(context, request.num_prompt_tokens)
        )
        if self._residents is not None:
            self._residents.queued(request.request_id, self.clock())

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """One step: reorder and preempt, then vLLM's own scheduling."""
        now = self.clock()
        if self._link is not None:
            for command in self._link.take_commands():
                # KV commands can wait until this step was sent to the device.
                later = command.kv and self._steps
                (self._kv_commands.append if later else self.obey)(command)
        if self._forgetting:
            self._forget()
        if self._eviction is not None:
            self._eviction.policy.expire(now)
        self._decisions.decide(now)
        self._decisions.choose_victims()
        prefilling = self.prefilling()
        self._limit_prompts(prefilling)
        with self.admitting(None if self._residents is None else self._residents.admitting):
            output = super().schedule(*args, **kwargs)
        if self.prompt_budget is not None:
            self._short.delayed(self.prompt_budget.delay_s, self.prompt_budget.limited)
        self._loads.note(self._residents, now)
        if self._eviction is not None and self._eviction.ledger.unsettled:
            self._eviction.ledger.settle(self._takers(output), now)
        started = self.started(output)
        for sequence in started:
            self._start(sequence, output.num_scheduled_tokens.get(sequence, 0), now)
        prefill = self.prefill_of(output, {*prefilling, *started})
        self._steps.begin(output, prefill, self.attention_pairs_of(prefill), self.clock())
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: Any
    ) -> Any:
        """A step has run: charge it, and report the calls that finished in it."""
        now = self.clock()
        duration_s, prefill, pairs = self._steps.end(scheduler_output, now)
        tokens = scheduler_output.num_scheduled_tokens
        self.calls.serve(tokens, duration_s, now, prefill)
        self._short.ran(duration_s)
        context = self.earlier_tokens(scheduler_output)
        self._meter.note(prefill, len(tokens), context, pairs, duration_s)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        self._report_finished(now)
        while self._kv_commands:
            self.obey(self._kv_commands.pop(0))
        return outputs

    def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
        """Requests are aborted from outside. Their use so far still counts."""
        finished = super().finish_requests(*args, **kwargs)
        self._report_finished(self.clock())
        return finished

    def on_preempted(self, request: Request, computed: int) -> None:
        """A running request was preempted: it waits again, at its place in the order."""
        self._lost[request.request_id] = computed
        self.calls.preempt(request.request_id, self.clock())
        if self._residents is not None:
            self._residents.queued(request.request_id, self.clock())

    def on_finished(self, request: Request) -> None:
        """A request has finished. Its report is sent when vLLM has processed the whole step."""
        self._finished.append(request)

    def on_queued(self, request: Request) -> None:
        """A request entered the waiting queue: a new one, or a new turn of a streaming one."""
        self.calls.moved.add(request.request_id)

    def on_freeing(self, request: Request) -> None:
        """Record the metadata of the blocks before they become free, and save what a preempted
        request has computed."""
        self._decisions.touch()
        call = self.calls.of(request.request_id)
        if self._residents is not None:
            if request.is_finished():
                self._residents.left(request.request_id, self.clock())
            else:
                self._residents.freed()
        if self._swap is not None:
            if request.is_finished():
                self._swap.forget(request.request_id)
            else:
                saved = self._swap.save(request, self.blocks_of(request)[0])
                if call is not None:
                    call.blocks_swapped_out += saved
        if self._eviction is not None and call is not None:
            call.add_hints(
                self._eviction.note(
                    call.context,
                    self.blocks_of(request),
                    self.clock(),
                    prompt_tokens=request.num_prompt_tokens,
                    ended=request.is_finished(),
                )
            )

    def on_cache_emptied(self, entirely: bool) -> None:
        """Drop the swap buffer too: its blocks may come from the old weights."""
        if self._swap is not None and entirely:
            self._swap.reset_cache()
        if self._residents is not None and entirely:
            self._residents.reset(self.clock())
        if self._eviction is not None:
            self._eviction.policy.sweep()
            if entirely:
                self._eviction.policy.reset()
                self._eviction.ledger.emptied(self.clock())

    def shutdown(self) -> None:
        """Close the link to the API server."""
        if self._link is not None:
            self._link.close()
        super().shutdown()

    def obey(self, command: Command) -> None:
        """Execute a command from the HTTP API, between two steps."""
        if command.policy or command.options:
            self._switch(command)
        if command.reset_cache:
            self._forgetting = True
            self._forget()
        if command.kv and self._eviction is not None:
            self._eviction.obey(command.kv, self.clock())
        if command.kv and command.kv.action == "forget" and self._residents is not None:
            self._residents.ended(command.kv.program)

    def state(self) -> dict[str, Any]:
        """The answer of `GET /weft/state`. Another thread calls this, so it only reads counts
        and copies of names."""
        return {
            "policy": self.calls.order.name,
            "options": self.options.model_dump(),
            "running": len(self.running),
            "waiting": len(self.waiting),
            "waiting_by_queue": {str(q): n for q, n in self.calls.waiting_by_queue().items()},
            "displacements": self._decisions.preempted,
            "recomputed_tokens": self._recomputed,
            "promotions": self.calls.promotions,
            "demotions": self.calls.demotions,
            "kv_usage": self.get_kv_cache_usage(),
            "cache_tokens": self.cache_tokens(),
            **self.speed(),
            "swap": None if self._swap is None else self._swap.state(),
            "held_back": 0 if self._residents is None else self._residents.deferred,
            "kept_blocks": 0 if self._residents is None else self._residents.kept_blocks,
            "programs": {
                "running": self.calls.running_programs(),
                **({} if self._residents is None else self._residents.programs()),
            },
            "kv": None if self._eviction is None else self._eviction.policy.state(),
        }

    def speed(self) -> dict[str, Any]:
        """The part of `state` that predicts a call's time: the limits and the fitted step costs."""
        return {**self.limits(), "costs": self._meter.fit.state()}

    def cache_tokens(self) -> int:
        """The capacity of the prefix cache in tokens; 0 if it is off."""
        return len(self.kv_blocks()) * self.block_size if self.prefix_cached() else 0

    def waiting_names(self) -> Iterable[str]:
        """Ids of the waiting requests, the next ones to be admitted first."""
        yield from self._decisions.seen_first()
        yield from super().waiting_names()

    def violations(self) -> list[str]:
        """Inconsistencies between vLLM's state and ours, in words."""
        # vLLM keeps finished requests until a connector no longer reads their blocks.
        alive = [name for name, request in self.requests.items() if not request.is_finished()]
        found = self.calls.violations(alive)
        if self._eviction is not None:
            found += self._eviction.violations()
        if self._swap is not None:
            found += self._swap.violations()
        if self._residents is not None:
            found += self._residents.violations(self.waiting_names())
        strays = (self._lost.keys() | self._loads.began.keys()) - self._sequences.keys()
        return [*found, f"{len(strays)} unknown sequences"] if strays else found

    def _forget(self) -> None:
        self._forgetting = not self.forget_cache()

    def _validated(self, policy: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options with these changes. Raises ValueError if the order refuses them."""
        options = self.options.changed(changes)
        build_order(policy or self.calls.order.name, options)
        return options.model_dump()

    def _switch(self, command: Command) -> None:
        """Change the order, its options, or both."""
        now, before = self.clock(), self.calls.order
        self.options = self.options.changed(command.options)
        order = build_order(command.policy or before.name, self.options)
        residents = self._residents
        # What it has learned stays true, unless everything begins anew.
        kept = residents is not None and order.residents and not command.reset_cache
        if residents is not None and not kept:
            residents.dissolve()
        self.calls.switch(order, now)
        if residents is not None and kept:
            residents.freed()
        else:
            self._residents = self._decisions.residents = self._new_residents()

    def _new_residents(self) -> Residents | None:
        if self._eviction is None or not self.calls.order.residents:
            return None
        blocks, tokens = len(self.kv_blocks()), self.cache_tokens()
        reside, pace = self._eviction.policy.reside, self._meter.pace
        return Residents(self, self.calls, blocks, tokens, reside, pace, self._short)

    def _limit_prompts(self, prefilling: dict[str, int]) -> None:
        """Bound how much prompts lengthen the next step for others."""
        slots = self.free_slots() if self.waiting else 0
        self.prompt_budget = None
        if (prefilling or slots) and self.splits_prompts():
            step = self.next_step(prefilling, slots)
            self.prompt_budget = self._budgets.next(step, self.calls.order.paces)

    def _takers(self, output: SchedulerOutput) -> Iterable[tuple[str, list[int]]]:
        """Return the programs whose calls may have taken blocks in this step, with these blocks."""
        for sequence, blocks in self.blocks_taken(output):
            call = self.calls.of(sequence)
            if call is not None:
                yield call.context.program, blocks

    def _start(self, sequence: str, scheduled: int, now: float) -> None:
        self._loads.started(sequence, self._residents, now)
        self.calls.start(sequence, now)
        call, request = self.calls.of(sequence), self._sequences.get(sequence)
        if call is None or request is None:
            return
        if self._swap is not None:
            call.blocks_swapped_in += self._swap.loaded.pop(sequence, 0)
        lost = self._lost.pop(sequence, None)
        if lost is None:
            self._note_prompt(call, request, now)
        else:
            resumed_at = int(request.num_computed_tokens) - scheduled
            recomputed = max(0, lost - resumed_at)
            call.recomputed_tokens += recomputed
            self._recomputed += recomputed

    def _note_prompt(self, call: CallState, request: Request, now: float) -> None:
        """Note where the prompt of a request that runs for the first time comes from."""
        cached = self.cached_tokens_of(request)
        call.cached_tokens += cached
        call.loaded_tokens += self.missing_tokens_of(request.request_id)[1]
        if self._eviction is None:
            return
        ledger = self._eviction.ledger
        if ledger.emptied_at is not None:
            call.emptied_s = now - ledger.emptied_at
        lost = ledger.loss(self.missing_keys(request, cached))
        if lost.blocks:
            tokens = lost.blocks * self.block_sizes()[0]
            if tokens > call.evicted_tokens:
                call.evicted_by = lost.program[:MAX_PROGRAM]
                call.evicted_s = now - lost.at
            call.evicted_tokens += tokens

    def _report_finished(self, now: float) -> None:
        while self._finished:
            self._leave(self._finished.pop(0), now)

    def _leave(self, request: Request, now: float) -> None:
        sequence = request.request_id
        self._sequences.pop(sequence, None)
        self._lost.pop(sequence, None)
        self._loads.began.pop(sequence, None)
        call = self.calls.of(sequence)
        if call is None:
            return
        if sequence in self.requests:
            # A connector still reads its blocks. When they are freed, the call is gone.
            self.on_freeing(request)
        call.prompt_tokens += request.num_prompt_tokens
        call.output_tokens += request.num_output_tokens
        if self.calls.leave(sequence, now) is not None:
            self._send(call.report())

    def _send(self, report: CallReport) -> None:
        if self._link is not None:
            self._link.send_report(report)
