"""The engine's scheduler: programs ordered by attained service (Agentix Algorithm 1).

vLLM's own `schedule()` still does all batching, caching and allocation. Before each step this
class reviews the queues, sorts the waiting queue and takes victims out of the batch; after each
step it charges the step's duration to the calls that were in it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from engine_patches.account import CallAccount
from engine_patches.channel import Command, EngineChannel
from engine_patches.compat import Request, SchedulerHooks, SchedulerOutput, warn_of_kernels_package
from engine_patches.orders import build_order
from engine_patches.settings import PluginSettings
from engine_patches.victims import Candidate, choose_victims
from engine_patches.wire import CallContext, CallReport

# Finished calls whose totals are kept, in case another sequence of the same call still comes
# (several prompts in one request).
_REMEMBERED_CALLS = 1024


class WeftScheduler(SchedulerHooks):
    """`--scheduler-cls engine_patches.scheduler.WeftScheduler`.

    Settings come from `--additional-config '{"weft": {...}}'` (PluginSettings). Greedy outputs
    are those of an engine without it: only the order of the work changes.
    """

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        warn_of_kernels_package()
        self.settings = PluginSettings.from_config(self.vllm_config.additional_config)
        self.order = build_order(self.settings.policy, self.settings.options)
        self._calls: dict[str, CallAccount] = {}
        self._finished: OrderedDict[str, CallAccount] = OrderedDict()
        self._call_of: dict[str, str] = {}
        self._requests: dict[str, Request] = {}
        self._entries = 0
        self._steps: dict[int, float] = {}
        self._last_step_end = 0.0
        self._displacements = 0
        self._channel = (
            EngineChannel(self.settings.channel, self.state) if self.settings.channel else None
        )

    # -- vLLM calls these ------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """A request arrives: find its call's account and let the order place it."""
        known = request.request_id in self._requests
        super().add_request(request)
        if known:
            return
        now = self.clock()
        context = CallContext.from_xargs(self.extra_args_of(request)) or CallContext(
            call=request.request_id, program=request.request_id
        )
        account = self._account(context, now)
        self._call_of[request.request_id] = context.call
        self._requests[request.request_id] = request
        account.enqueue(request.request_id, now)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """One step: reorder, displace, then vLLM's own scheduling."""
        now = self.clock()
        if self._channel is not None:
            for command in self._channel.take_commands():
                self.obey(command)
        self._review(now)
        if self.order.displaces:
            self._displace(now)
        self._sort()
        output = super().schedule(*args, **kwargs)
        for sequence in output.num_scheduled_tokens:
            account = self._account_of(sequence)
            if account is not None and sequence not in account.running:
                account.start(sequence, now)
                request = self._requests[sequence]
                if request.num_preemptions == 0:
                    account.cached_tokens += self.cached_tokens_of(request)
        self._steps[id(output)] = self.clock()
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: Any
    ) -> Any:
        """A step has run: charge it, and report the calls that it finished."""
        now = self.clock()
        # With async scheduling steps overlap: one begins when the one before it has ended.
        begun = max(self._steps.pop(id(scheduler_output), now), self._last_step_end)
        self._last_step_end = now
        duration = max(0.0, now - begun)
        served: dict[str, CallAccount] = {}
        for sequence in scheduler_output.num_scheduled_tokens:
            account = self._account_of(sequence)
            if account is not None:
                served[account.context.call] = account
        for account in served.values():
            account.serve(duration)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        for sequence in scheduler_output.num_scheduled_tokens:
            request = self._requests.get(sequence)
            if request is not None and request.is_finished():
                self._leave(request, now)
        return outputs

    def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
        """Requests are aborted from outside; what they have used still counts."""
        finished = super().finish_requests(*args, **kwargs)
        now = self.clock()
        for request in finished:
            self._leave(request, now)
        return finished

    def on_preempted(self, request: Request, now: float) -> None:
        """A running request went back to the queue: it waits again, in its place."""
        account = self._account_of(request.request_id)
        if account is not None:
            account.preemptions += 1
            account.enqueue(request.request_id, self.clock())

    def shutdown(self) -> None:
        """Close the channel with the engine."""
        if self._channel is not None:
            self._channel.close()
        super().shutdown()

    # -- ours --------------------------------------------------------------------------------

    def obey(self, command: Command) -> None:
        """Carry out a command of the endpoint, between two steps."""
        if command.policy:
            self.order = build_order(command.policy, self.settings.options)
            for account in self._calls.values():
                self._stand(account, self.order.enter(account.view(self.clock())))
                account.policy = self.order.name
        if command.reset_cache:
            self.forget_cache()

    def state(self) -> dict[str, Any]:
        """What `GET /weft/state` shows; read from another thread, so counts only."""
        queues: dict[int, int] = {}
        for account in list(self._calls.values()):
            if account.waiting:
                queues[account.queue] = queues.get(account.queue, 0) + len(account.waiting)
        return {
            "policy": self.order.name,
            "running": len(self.running),
            "waiting": len(self.waiting),
            "waiting_by_queue": {str(q): n for q, n in sorted(queues.items())},
            "displacements": self._displacements,
            "kv_usage": self.get_kv_cache_usage(),
        }

    def _account(self, context: CallContext, now: float) -> CallAccount:
        account = self._calls.get(context.call)
        if account is not None:
            return account
        account = self._finished.pop(context.call, None)
        if account is None:
            account = CallAccount(context=context, policy=self.order.name)
            self._stand(account, self.order.enter(account.view(now)))
        self._calls[context.call] = account
        return account

    def _account_of(self, sequence: str) -> CallAccount | None:
        return self._calls.get(self._call_of.get(sequence, ""))

    def _stand(self, account: CallAccount, standing: Any) -> None:
        self._entries += 1
        account.stand(standing, self._entries)

    def _review(self, now: float) -> None:
        for account in self._calls.values():
            standing = self.order.review(account.view(now))
            if standing is not None:
                if standing.promoted and account.waiting_since is not None:
                    account.settle_wait(now)
                self._stand(account, standing)

    def _sort(self) -> None:
        ranks = self._ranks()
        self.sort_waiting(ranks)
        self.sort_running(ranks)

    def _ranks(self) -> dict[str, tuple[int, int]]:
        ranks: dict[str, tuple[int, int]] = {}
        for account in self._calls.values():
            rank = (account.queue, account.order_in_queue)
            for sequence in account.waiting:
                ranks[sequence] = rank
            for sequence in account.running:
                ranks[sequence] = rank
        return ranks

    def _displace(self, now: float) -> None:
        free = self.free_slots()
        if free >= len(self.waiting):
            return
        victims = choose_victims(
            [c for r in self.waiting_requests() if (c := self._candidate(r))],
            [c for r in self.running if self.can_be_displaced(r) and (c := self._candidate(r))],
            free_slots=free,
            max_displacements=self.settings.max_displacements,
        )
        for sequence in victims:
            account = self._account_of(sequence)
            if account is not None:
                account.displaced += 1
            self._displacements += 1
            self.displace(self._requests[sequence], now)

    def _candidate(self, request: Request) -> Candidate | None:
        account = self._account_of(request.request_id)
        if account is None:
            return None
        return Candidate(
            sequence=request.request_id,
            queue=account.queue,
            order_in_queue=account.order_in_queue,
            computed_tokens=request.num_computed_tokens,
            displaced=account.displaced,
        )

    def _leave(self, request: Request, now: float) -> None:
        sequence = request.request_id
        account = self._account_of(sequence)
        self._call_of.pop(sequence, None)
        self._requests.pop(sequence, None)
        if account is None:
            return
        account.leave(sequence, now)
        account.prompt_tokens += request.num_prompt_tokens
        account.output_tokens += request.num_output_tokens
        if account.alive:
            return
        del self._calls[account.context.call]
        self._finished[account.context.call] = account
        while len(self._finished) > _REMEMBERED_CALLS:
            self._finished.popitem(last=False)
        self._send(account.report())

    def _send(self, report: CallReport) -> None:
        if self._channel is not None:
            self._channel.send_report(report)
