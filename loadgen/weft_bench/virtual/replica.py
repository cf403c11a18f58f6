"""One engine in virtual time: steps of the real scheduler with durations from the cost model."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vllm import SamplingParams
from vllm.v1.request import Request, RequestStatus
from weft_engine.emulated.presets import EngineShape
from weft_engine.emulated.transfers import Block, Link, NoTransfers, Offloads, Transfers
from weft_engine.engine_link import Command
from weft_engine.kv_command import KvCommand
from weft_engine.wire import CallContext, CallReport

from weft_bench.virtual.engine import EngineSettings, build_scheduler
from weft_bench.virtual.prompts import Prompt, PromptBook


class TokenTimes:
    """Watches calls of one engine for tokens of their answers, counted from 1."""

    def __init__(self) -> None:
        self._wanted: dict[str, Sequence[int]] = {}
        self._found: dict[str, list[float]] = {}

    def watch(self, call: str, tokens: Sequence[int]) -> None:
        """Record when these tokens arrive. tokens: ascending, repeats allowed."""
        self._wanted[call] = tokens
        self._found[call] = []

    def passed(self, requests: Mapping[str, Any], ends: Sequence[float]) -> None:
        """Record steps that ended at these instants.

        The requests already contain their output: one token a step, or none.
        """
        for call, wanted in self._wanted.items():
            request = requests.get(call)
            if request is None:
                continue
            found = self._found[call]
            # The last step brought the last token. Earlier tokens were recorded before.
            done = len(request._output_token_ids)
            while len(found) < len(wanted) and wanted[len(found)] <= done:
                found.append(ends[wanted[len(found)] - done - 1])

    def take(self, call: str, ended: float) -> list[float]:
        """Return when each watched token of an ended call arrived; empty if it was not watched.

        ended: when the call ended, with its last token.
        """
        wanted, found = self._wanted.pop(call, ()), self._found.pop(call, [])
        return found + [ended] * (len(wanted) - len(found))


# Consecutive steps without work after which a waiting call counts as never admissible.
_EMPTY_STEPS: Final = 1000


def _unmetered(blocks: int) -> None:
    """Blocks were moved."""


class SimulationError(RuntimeError):
    """The simulation cannot continue. The message says why."""


@dataclass(frozen=True, slots=True)
class Happened:
    """Result of a step: calls that got their first token, and reports of calls that ended."""

    first_tokens: Sequence[str]
    reports: Sequence[CallReport]


class Replica:
    """A scheduler and its clock.

    At most one step, or one leap of several steps, is running. With asynchronous scheduling the
    next step is already scheduled and waits for its end.

    started: calls whose first computation is in the last scheduled steps, with the instant.

    `start` begins a step and returns its end; `finish` ends it. `add` takes a call in between and
    returns the new end of the running step, because a leap stops at an arrival.
    """

    def __init__(self, name: str, shape: EngineShape, settings: EngineSettings) -> None:
        self.name = name
        self.shape = shape
        self.now = 0.0
        self.busy = False
        self.started: list[tuple[str, float]] = []
        self.tokens = TokenTimes()
        self._told: list[Command] = []
        self._book = PromptBook(shape.block_tokens)
        self._answers: dict[str, int] = {}
        # Scheduled steps that have not ended, each with its end; `_depth` at most.
        self._flight: deque[tuple[Any, float]] = deque()
        self._depth = 2 if settings.asynchronous else 1
        self._leap: list[float] = []
        self._begun = 0.0
        self._empty = 0
        self._swapped = 0
        self._params = SamplingParams(max_tokens=1, ignore_eos=True)
        self.scheduler = build_scheduler(shape, settings)
        self.scheduler.clock = lambda: self.now
        self._transfers: Transfers = NoTransfers()
        if settings.host_blocks:
            block = Block(shape.cost.swapped_block_s, shape.block_bytes)
            self._transfers = Offloads(Link(block, _unmetered), Link(block, _unmetered))

    def prompt(self, program: str, parts: Any) -> Prompt:
        """Return a prompt of these parts."""
        return self._book.prompt(program, parts)

    def add(
        self, context: CallContext, prompt: Prompt, answer: int, output_tokens: int, now: float
    ) -> float | None:
        """Add a call. Returns the new end of the running step, or None if it is unchanged.

        answer: the first token of its answer. Raises SimulationError for a call that can never run.
        """
        shape = self.shape
        length = prompt.length + output_tokens
        if length > min(shape.context, (shape.kv_blocks - 1) * shape.block_tokens):
            raise SimulationError(f"a call of {length} tokens does not fit {self.name}")
        changed = self._cut(now)
        self.now = now
        params = copy.copy(self._params)
        params.max_tokens = output_tokens
        params.extra_args = context.to_xargs()
        self._answers[context.call] = answer
        self.scheduler.add_request(
            Request(
                request_id=context.call,
                # Never read, because the cache compares hashes.
                prompt_token_ids=[0] * prompt.length,
                sampling_params=params,
                pooling_params=None,
                arrival_time=now,
                block_hasher=self._book.hasher(prompt),
            )
        )
        self.scheduler.quiet = False
        return changed

    def start(self, now: float) -> float | None:
        """Begin the next step. Returns its end, or None without work."""
        self.now = now
        scheduler = self.scheduler
        for command in self._told:
            scheduler.obey(command)
        self._told = []
        if not self._flight and not scheduler.has_unfinished_requests():
            return None
        self.busy = True
        self._begun = now
        self._leap = self._plan(now)
        if self._leap:
            return self._leap[-1]
        self.started = []
        while len(self._flight) < self._depth and scheduler.has_unfinished_requests():
            begins = self._flight[-1][1] if self._flight else now
            output = scheduler.schedule()
            self.started += [(new.req_id, begins) for new in output.scheduled_new_reqs]
            computes = bool(output.num_scheduled_tokens)
            moves = self._transfers.begin(output, begins)
            if self._flight and not computes:
                # All calls wait for the running step.
                scheduler.update_from_output(output, self._answers)
                break
            begins = max(begins, moves.ready_at)
            # Calls that wait for memory, or for what is loaded, will run.
            waits = not computes and (self._transfers.pending or scheduler.deferred)
            self._empty = 0 if computes or waits else self._empty + 1
            if self._empty > _EMPTY_STEPS:
                raise SimulationError(f"{self.name} has calls waiting and does no work")
            lasts = self.shape.cost.step(
                scheduler.prefill_tokens,
                scheduler.decode_sequences,
                scheduler.context_tokens,
                scheduler.prefill_pairs,
                self._newly_swapped(),
            )
            self._flight.append((output, begins + lasts))
        return self._flight[0][1]

    def finish(self, now: float) -> Happened:
        """End the running step."""
        self.now = now
        self.busy = False
        scheduler = self.scheduler
        if self._leap:
            self._land(len(self._leap))
            return Happened((), ())
        output, _ = self._flight.popleft()
        scheduler.transfers = self._transfers.finished(now)
        scheduler.update_from_output(output, self._answers)
        self.tokens.passed(scheduler.requests, (now,))
        firsts, scheduler.first_tokens = scheduler.first_tokens, []
        reports, scheduler.reports = scheduler.reports, []
        for report in reports:
            del self._answers[report.call]
        return Happened(firsts, reports)

    def interrupt(self, now: float) -> float | None:
        """Stop a leap between two steps, for an action at `now`.

        Returns the new end of the running step, or None if it is unchanged. Afterwards no step may
        be running.
        """
        return self._cut(now)

    def computed(self, call: str) -> int:
        """Return the number of computed tokens of a call."""
        return int(self.scheduler.requests[call].num_computed_tokens)

    def send_command(self, kv: str, program: str, now: float) -> float | None:
        """Send a command about a program's KV blocks, as `POST /weft/kv` does.

        The engine executes it before the next step. Returns as `interrupt`.
        """
        self._told.append(Command(kv=KvCommand(kv, program)))
        return self._cut(now)

    def abort(self, call: str, now: float) -> CallReport | None:
        """Remove a call between two steps. Returns its report, or None if it is not here."""
        if call not in self._answers:
            return None
        self.now = now
        scheduler = self.scheduler
        scheduler.finish_requests(call, RequestStatus.FINISHED_ABORTED)
        del self._answers[call]
        scheduler.quiet = False
        return scheduler.reports.pop()

    def violations(self) -> list[str]:
        """Return the violated invariants of an idle engine; empty if all hold."""
        pool = self.scheduler.kv_cache_manager.block_pool
        found = self.scheduler.violations()
        # One block is the null block.
        missing = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
        if missing:
            found.append(f"{missing} KV blocks are in use")
        if self.scheduler.requests or self._answers or self.busy:
            found.append("calls remain")
        return [f"{self.name}: {what}" for what in found]

    def _plan(self, now: float) -> list[float]:
        """Return the end of each step of a leap; empty if the next step is an ordinary one."""
        scheduler = self.scheduler
        steps, quantum, due = scheduler.furthest(now)
        if steps < 2 or self._transfers.pending:
            return []
        cost = self.shape.cost.step
        count = len(scheduler.running)
        context = sum(r.num_computed_tokens for r in scheduler.running)
        last = min(now + quantum, due)
        ends: list[float] = []
        end = now
        for _ in range(steps):
            end += cost(0, count, context)
            context += count
            ends.append(end)
            if end >= last:
                break
        return ends

    def _cut(self, now: float) -> float | None:
        """End a leap with its current step. Returns the end of that step."""
        if not self._leap or not self.busy:
            return None
        done = bisect_right(self._leap, now)
        if done == len(self._leap) - 1 and not done:
            return None
        if done:
            rest = self._leap[done:]
            self._land(done)
            self._leap = rest
        if self._begun == now:
            # A step has just ended. The next step is scheduled together with the new call.
            self._leap, self.busy = [], False
            return now
        del self._leap[1:]
        return self._leap[0]

    def _land(self, steps: int) -> None:
        ends = self._leap[:steps]
        self.now = end = ends[-1]
        self.scheduler.leap(self._answers, self._begun, ends)
        self.tokens.passed(self.scheduler.requests, ends)
        self._begun = end
        self._leap = []

    def _newly_swapped(self) -> int:
        if self.scheduler._swap is None:
            return 0
        swap = self.scheduler._swap.state()
        before, self._swapped = self._swapped, swap["swapped_out"] + swap["swapped_in"]
        return self._swapped - before
