"""Combines decode steps, with the decisions of the real scheduler.

In most steps vLLM's scheduler only finds that each running sequence takes one more token. Two
shortcuts skip that work:

- Parking. A sequence that only decodes leaves the running list while vLLM schedules a step. Its
  token and its slot are subtracted from the budgets, and vLLM's KV-cache manager allocates its
  block before any admission, as vLLM does. If the budget or the free blocks do not cover all
  running sequences, parking is skipped and vLLM decides about all of them.
- Leaping. After a step in which all sequences decoded and none arrived, nothing changes until a
  sequence ends, a call arrives, a quantum is used up, a wait is long enough for a promotion, or
  the free blocks run out. The steps until then are one.

`naive` turns both off. A test verifies that the records are equal, byte for byte.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from vllm.v1.outputs import ModelRunnerOutput
from weft_engine.compat import Request, SchedulerHooks, SchedulerOutput
from weft_engine.scheduler import WeftScheduler
from weft_engine.step_cost import attention_pairs
from weft_engine.wire import CallReport

# First token of each sequence's answer; its tokens count up from it.
Answers = Mapping[str, int]
_NO_PROMPTS: Final[Mapping[str, int]] = {}
# Steps of one leap; longer plans are seldom completed.
_LONGEST: Final = 256


class Parking(SchedulerHooks):
    """Schedules the sequences that may change and carries along those that only decode.

    naive: carry none. first_tokens: sequences that received their first token; the caller removes
    them. quiet: all sequences decoded in the last step, and none arrived, ended or was preempted.
    prefill_tokens, prefill_pairs, decode_sequences, context_tokens: the work of the last step, and
    the computed tokens before it. preemptions: total count. transfers: vLLM's report on KV
    transfers that ended, for the next step that ends.
    """

    naive = False
    running: list[Request]
    max_num_scheduled_tokens: int
    max_num_running_reqs: int
    _most_active: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.first_tokens: list[str] = []
        self.quiet = False
        self.context_tokens = 0
        self.prefill_tokens = self.prefill_pairs = 0
        self.decode_sequences = 0
        self.preemptions = 0
        self.transfers: Any = None
        self._parked: list[Request] = []
        # For each scheduled step: what vLLM scheduled, which sequences get a token, the context.
        self._planned: dict[int, tuple[dict[str, int], set[str], int]] = {}

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Schedule one step and count its work for the cost model."""
        preempted = self.preemptions
        parked, others = ([], []) if self.naive else self._part()
        if parked:
            output = self._schedule_beside(parked, others)
        else:
            output = super().schedule(*args, **kwargs)
        self._parked = parked
        self._count(output)
        self.quiet = (
            not self.prefill_tokens
            and not output.scheduled_new_reqs
            and preempted == self.preemptions
            and len(output.num_scheduled_tokens) == len(self.running) > 0
        )
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: Answers
    ) -> Any:
        """End the step: every sequence whose prefill is complete gets a token."""
        for request in self._parked:
            self._append(request, model_runner_output[request.request_id], 1)
        self._parked = []
        rest, sampled, _ = self._planned.pop(id(scheduler_output))
        tokens: list[list[int]] = []
        for name in rest:
            request = self.requests.get(name)
            # A sequence that was aborted meanwhile gets no token.
            if request is None or name not in sampled:
                tokens.append([])
                continue
            done = len(request._output_token_ids)
            if not done:
                self.first_tokens.append(name)
            tokens.append([model_runner_output[name] + done])
        names = list(rest)
        scheduler_output.num_scheduled_tokens = rest
        before = len(self.running)
        outputs = super().update_from_output(
            scheduler_output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: i for i, name in enumerate(names)},
                sampled_token_ids=tokens,
                kv_connector_output=self.transfers,
            ),
        )
        self.transfers = None
        self.quiet = self.quiet and len(self.running) == before
        return outputs

    def earlier_tokens(self, output: SchedulerOutput) -> int:
        """Return the context of a step, with that of the sequences which vLLM did not schedule."""
        return self._planned[id(output)][2]

    def advance(self, requests: list[Request], steps: int) -> None:
        """Allocate KV blocks for `steps` more tokens of decoding sequences.

        The last token is not known yet. The caller makes sure that enough blocks are free.
        """
        size = self.block_size
        for request in requests:
            computed = request.num_computed_tokens
            # A block begins or becomes full. A full block goes into the prefix cache.
            if computed % size == 0 or computed // size != (computed + steps) // size:
                self.kv_cache_manager.grow(request, steps)
            request.num_computed_tokens = computed + steps

    def _append(self, request: Request, answer: int, count: int) -> None:
        """Append the next `count` tokens of an answer."""
        outputs, tokens = request._output_token_ids, request._all_token_ids
        first = answer + len(outputs)
        if count == 1:
            outputs.append(first)
            tokens.append(first)
        else:
            outputs.extend(range(first, first + count))
            tokens.extend(range(first, first + count))
        if len(tokens) // self.block_size > len(request.block_hashes):
            request.update_block_hashes()

    def _part(self) -> tuple[list[Request], list[Request]]:
        """Return the requests to park in this step and the others; two empty lists if none can
        park.
        """
        parked: list[Request] = []
        others: list[Request] = []
        size = self.block_size
        tokens = blocks = 0
        for request in self.running:
            wanted = len(request._all_token_ids) - request.num_computed_tokens
            tokens += wanted
            done = len(request._output_token_ids)
            if wanted == 1 and 0 < done < request.max_tokens - 1:
                parked.append(request)
                blocks += request.num_computed_tokens % size == 0
            else:
                others.append(request)
                blocks += -(-wanted // size) + 1
        if tokens > self.max_num_scheduled_tokens or blocks > self.free_blocks():
            return [], []
        return parked, others

    def _schedule_beside(self, parked: list[Request], others: list[Request]) -> SchedulerOutput:
        running, count = self.running, len(parked)
        self.advance(parked, 1)
        config = self.scheduler_config
        limits = (
            self.max_num_scheduled_tokens,
            config.max_num_batched_tokens,
            self.max_num_running_reqs,
            self._most_active,
        )
        self.max_num_scheduled_tokens -= count
        config.max_num_batched_tokens -= count
        self.max_num_running_reqs -= count
        self._most_active -= count
        self.running = list(others)
        try:
            output = super().schedule()
        finally:
            (
                self.max_num_scheduled_tokens,
                config.max_num_batched_tokens,
                self.max_num_running_reqs,
                self._most_active,
            ) = limits
        admitted = self.running[len(others) :]
        running.extend(admitted)
        self.running = running
        return output

    def _count(self, output: SchedulerOutput) -> None:
        """Count the work of the step, and restore vLLM's order of its sequences."""
        rest = output.num_scheduled_tokens
        if self._parked:
            parked = {request.request_id for request in self._parked}
            output.num_scheduled_tokens = {
                name: 1 if name in parked else rest[name]
                for name in [request.request_id for request in self.running]
                if name in parked or name in rest
            }
            output.total_num_scheduled_tokens += len(parked)
        prefill = pairs = decode = context = 0
        requests = self.requests
        # A later step may continue a prompt before this step has ended.
        sampled = {name for name in rest if not requests[name].is_prefill_chunk}
        for name, tokens in output.num_scheduled_tokens.items():
            request = requests[name]
            before = request.num_computed_tokens - tokens
            context += before
            if tokens == 1 and (request._output_token_ids or request.num_output_placeholders > 1):
                decode += 1
            else:
                prefill += tokens
                pairs += attention_pairs(tokens, before)
        self._planned[id(output)] = (rest, sampled, context)
        self.prefill_tokens, self.prefill_pairs = prefill, pairs
        self.decode_sequences, self.context_tokens = decode, context


class SimScheduler(WeftScheduler, Parking):
    """Weft's production scheduler on top of `Parking`.

    reports: those of ended calls; the caller removes them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reports: list[CallReport] = []

    def _send(self, report: CallReport) -> None:
        self.reports.append(report)

    def on_preempted(self, request: Request, computed: int) -> None:
        """Count preemptions, so that a step with one is not quiet."""
        self.preemptions += 1
        super().on_preempted(request, computed)

    @property
    def deferred(self) -> int:
        """The number of calls that wait for the memory of residents."""
        return 0 if self._residents is None else self._residents.deferred

    def furthest(self, now: float) -> tuple[int, float, float]:
        """Return the limits of a leap from now: steps, seconds of service, and an instant.

        The leap ends with the step that reaches one of the limits. 0 steps: no leap.
        """
        none = (0, 0.0, 0.0)
        order = self.calls.order
        if self.naive or not self.quiet or self.calls.moved:
            return none
        if self.calls.shares.contended:
            # The tenant whose turn it is depends on the charge for each step.
            return none
        if self._eviction and len(self._eviction.policy.pins):
            return none
        rule = self.calls.rule
        due = min(self.calls.starves_at, self._residents.due if self._residents else math.inf)
        due = min(due, math.inf if rule is None else rule.next_at)
        if due <= now:
            return none
        first = self.first_waiting()
        if first is not None and self._short.run:
            # The prefill of the next step may be limited.
            return none
        if first is not None and (order.preempts or self._short.leading()):
            rank = self.calls.rank
            if rank(first.request_id)[:2] < rank(self.running[-1].request_id)[:2]:
                return none
        steps, quantum = _LONGEST, math.inf
        for request in self.running:
            call = self.calls.of(request.request_id)
            if call is None:
                return none
            quantum = min(quantum, call.quantum_left_s)
            steps = min(steps, request.max_tokens - len(request._output_token_ids) - 1)
        while steps > 1 and self._blocks_for(steps) > self.free_blocks():
            steps //= 2
        return steps, quantum, due

    def leap(self, answers: Answers, begun: float, ends: Sequence[float]) -> None:
        """Complete steps in which all running sequences decoded, and which ended at these
        instants."""
        running, steps, now = self.running, len(ends), ends[-1]
        context, count = sum(request.num_computed_tokens for request in running), len(running)
        for request in running:
            self._append(request, answers[request.request_id], steps)
        self.advance(running, steps)
        self.calls.serve(dict.fromkeys([r.request_id for r in running], 1), now - begun, now)
        for before, end in pairwise([begun, *ends]):
            self.calls.shares.cost.note(end - before, 0)
            self._short.ran(end - before)
            self._meter.note(_NO_PROMPTS, count, context, 0, end - before)
            context += count
        self._steps.last_end = now

    def _blocks_for(self, steps: int) -> int:
        size = self.block_size
        return sum(
            -(-(r.num_computed_tokens + steps) // size) - -(-r.num_computed_tokens // size)
            for r in self.running
        )
