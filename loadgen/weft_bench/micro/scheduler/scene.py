"""vLLM's scheduler and Weft's under one load in virtual time, for `weft bench scheduler`.

Both are vLLM's real scheduler with its real KV cache manager. A rule replaces the model: a sequence
after its prefill yields one token in each step, and a step has a fixed duration.
"""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any, Final

from vllm import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from weft_engine.emulated.cost_model import CostModel
from weft_engine.emulated.presets import EngineShape
from weft_engine.scheduler import WeftScheduler
from weft_engine.wire import CallContext

from weft_bench.micro.scheduler.command import OURS, STOCK
from weft_bench.virtual.engine import scheduler_of, vllm_config

BLOCK: Final = 16
STEP_TOKENS: Final = 8192
# Range of the prompts' tokens and of the answers' ones.
_PROMPT: Final = (64, 512)
_ANSWER: Final = (50, 450)
# Longer than any run of the quiet case.
_ENDLESS: Final = 3000
# Programs that return: the share of the mean context that all programs have in common, that of a
# first prompt, and what each later call adds beside the answer before it; the range of the number
# of calls; the longest gap between two of them, in steps.
_SHARED: Final = 1 / 8
_FIRST: Final = 1 / 2
_MORE: Final = 1 / 16
_CALLS: Final = (2, 12)
_GAP: Final = 80
_TOKEN: Final = 7


@dataclass(frozen=True, slots=True)
class Load:
    """A constant load.

    running, waiting: number of sequences to keep in each state. step_s: virtual seconds per step.
    quiet: no call ends and time stands still, so that no call arrives, is demoted or promoted.
    context: mean tokens of the contexts of programs that return with their next call; 0 for
    programs of one call. blocks: number of KV blocks; 0 for as many as all running sequences need
    at full length. tenants: number of tenants that alternate.
    """

    running: int = 256
    waiting: int = 1000
    step_s: float = 0.025
    quiet: bool = False
    asynchronous: bool = True
    seed: int = 0
    context: int = 0
    blocks: int = 0
    tenants: int = 1

    @property
    def max_length(self) -> int:
        """Tokens of the longest context."""
        if not self.context:
            return 4096
        first, more = int(_FIRST * self.context), int(_MORE * self.context)
        return first + _CALLS[1] * (more + _ANSWER[1]) + 1

    @property
    def kv_blocks(self) -> int:
        """Number of KV blocks, with the null block."""
        return 1 + (self.blocks or self.running * self.max_length // BLOCK)


@dataclass(frozen=True, slots=True)
class Call:
    """A future request. service_s, waiting_s: of its program's finished calls, in seconds.
    arrival_s: of the program. budget_s: the time until its target, None without one. cost_s: its
    predicted service.
    """

    name: str
    program: str
    service_s: float
    waiting_s: float
    prompt: tuple[int, ...]
    tokens: int
    tenant: str = ""
    budget_s: float | None = None
    cost_s: float = 0.0
    arrival_s: float = 0.0


class Programs:
    """Calls without end, the same for the same seed and the same ends.

    The attained service of programs spreads over all queues, and most programs are young. Two of
    three calls have a target, 1.5 to 20 times their cost away. Answers have 50 to 450 tokens, and
    prompts 64 to 512 unless the load has a context: then programs return with a longer one.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._count = 0
        self._shared = self._drawn(random.Random(load.seed), int(_SHARED * load.context))
        # The next calls of programs in their gaps, by when they are due.
        self._due: list[tuple[float, str]] = []
        # By call: the numbers of its program, how many calls follow it, and itself.
        self._later: dict[str, tuple[random.Random, int, Call]] = {}

    def next(self, now: float) -> Call:
        """Return the next call: of a program that returns, or of a new one."""
        if self._due and self._due[0][0] <= now:
            return self._later[heappop(self._due)[1]][2]
        numbers = random.Random(f"{self._load.seed}/{self._count}")
        call = self._first(numbers, now)
        left = numbers.randint(*_CALLS) - 1 if self._load.context else 0
        self._later[call.name] = numbers, left, call
        return call

    def ended(self, name: str, now: float) -> None:
        """A call has ended."""
        numbers, left, call = self._later.pop(name)
        if not left:
            return
        prompt = (*call.prompt, *[_TOKEN] * call.tokens)
        prompt += self._drawn(numbers, int(_MORE * self._load.context))
        follower = replace(
            call,
            name=f"{call.program}/{left}",
            prompt=prompt,
            tokens=numbers.randint(*_ANSWER),
            service_s=call.service_s + call.cost_s,
        )
        self._later[follower.name] = numbers, left - 1, follower
        gap_s = numbers.randrange(_GAP) * self._load.step_s
        heappush(self._due, (now + gap_s, follower.name))

    def _first(self, numbers: random.Random, now: float) -> Call:
        load, count = self._load, self._count
        self._count += 1
        service = numbers.lognormvariate(1.0, 1.6)
        length = int(_FIRST * load.context) - len(self._shared) or numbers.randint(*_PROMPT)
        tokens = _ENDLESS if load.quiet else numbers.randint(*_ANSWER)
        cost_s = tokens * load.step_s
        return Call(
            name=f"call-{count}",
            program=f"program-{count}",
            service_s=service,
            waiting_s=service * numbers.uniform(0.0, 2.0),
            prompt=self._shared + self._drawn(numbers, length),
            tokens=tokens,
            tenant=f"tenant-{count % load.tenants}" if load.tenants > 1 else "",
            budget_s=numbers.uniform(1.5, 20.0) * cost_s if count % 3 else None,
            cost_s=cost_s,
            arrival_s=now if load.context else 0.0,
        )

    @staticmethod
    def _drawn(numbers: random.Random, count: int) -> tuple[int, ...]:
        return tuple(numbers.choices(range(512), k=count))


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    schedule_s, update_s: processor time of `schedule()` and of the `update_from_output()` after it,
    seconds. scheduled: sequences in the step. admitted: those from the waiting queue.
    """

    schedule_s: float
    update_s: float
    scheduled: int
    admitted: int
    waiting: int


class Replica:
    """A scheduler under load."""

    def __init__(self, scheduler: Any, load: Load) -> None:
        self.scheduler = scheduler
        self.now = 0.0
        self._load = load
        self._programs = Programs(load)
        self._arrived = 0
        self._depth = 2 if load.asynchronous else 1
        self._flying: deque[tuple[Any, list[str]]] = deque()
        self._hasher = get_request_block_hasher(BLOCK, sha256)

    def step(self) -> Step:
        """Replace the calls that have ended, then run one step."""
        while len(self.scheduler.requests) < self._load.running + self._load.waiting:
            self._arrive(self._programs.next(self.now))
        begun = time.thread_time()
        output = self.scheduler.schedule()
        scheduled = time.thread_time() - begun
        names = list(output.num_scheduled_tokens)
        requests = self.scheduler.requests
        self._flying.append((output, [r for r in names if not requests[r].is_prefill_chunk]))
        updated = self._land() if len(self._flying) == self._depth else 0.0
        resumed = output.scheduled_cached_reqs.resumed_req_ids
        return Step(
            scheduled,
            updated,
            len(names),
            len(output.scheduled_new_reqs) + len(resumed),
            len(self.scheduler.waiting),
        )

    def _land(self) -> float:
        output, yields = self._flying.popleft()
        self.now += 0.0 if self._load.quiet else self._load.step_s
        names = list(output.num_scheduled_tokens)
        ready = set(yields)
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[[_TOKEN] if name in ready else [] for name in names],
        )
        begun = time.thread_time()
        updated = self.scheduler.update_from_output(output, result)
        took_s = time.thread_time() - begun
        for outputs in updated.values():
            for item in outputs.outputs:
                if item.finish_reason is not None:
                    self._programs.ended(item.request_id, self.now)
        return took_s

    def _arrive(self, call: Call) -> None:
        self._arrived += 1
        context = CallContext(
            call.name,
            call.program,
            service_s=call.service_s,
            waiting_s=call.waiting_s,
            arrival_s=call.arrival_s,
            # Programs have one thread, so their critical path equals their service.
            critical_path_s=call.service_s,
            tenant=call.tenant,
            budget_s=call.budget_s,
            cost_s=call.cost_s,
            left_s=call.budget_s,
            path_s=call.cost_s,
            deadline_s=call.budget_s,
        )
        self.scheduler.add_request(
            Request(
                request_id=call.name,
                prompt_token_ids=list(call.prompt),
                sampling_params=SamplingParams(
                    max_tokens=call.tokens, ignore_eos=True, extra_args=context.to_xargs()
                ),
                pooling_params=None,
                # A client of stock vLLM can do the same: programs with less service rank first.
                priority=int(call.service_s),
                arrival_time=self.now + self._arrived * 1e-9,
                block_hasher=self._hasher,
            )
        )


def replicas(load: Load, policy: str) -> dict[str, Replica]:
    """Return vLLM's scheduler with `--scheduling-policy priority`, and Weft's.

    Raises ValueError for an unknown policy.
    """
    shape = EngineShape(
        CostModel(load.step_s),
        load.running,
        STEP_TOKENS,
        load.kv_blocks,
        BLOCK,
        context=load.max_length,
    )
    weft = {"weft": {"policy": policy}}
    stock_config = vllm_config(shape, load.asynchronous, scheduling_policy="priority")
    ours_config = vllm_config(shape, load.asynchronous, additional_config=weft)
    stock_kind = stock_config.scheduler_config.get_scheduler_cls()
    stock = Replica(scheduler_of(stock_kind, stock_config, shape), load)
    ours = Replica(scheduler_of(WeftScheduler, ours_config, shape), load)
    ours.scheduler.clock = lambda: ours.now
    return {STOCK: stock, OURS: ours}
