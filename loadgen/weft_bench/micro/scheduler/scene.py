"""vLLM's scheduler and Weft's under one load in virtual time, for `weft bench scheduler`.

Both are vLLM's real scheduler with its real KV cache manager. A rule replaces the model: a sequence
after its prefill yields one token in each step, and a step has a fixed duration.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
_PROMPT: Final = (64, 512)
# The scarce case: number of shared tokens at the front of prompts, number of such prefixes, and
# range of each prompt's remaining tokens.
_SHARED: Final = 6144
_KINDS: Final = 8
_REST: Final = (512, 2048)
_ANSWER: Final = (50, 450)
# Longer than any run of the quiet case.
_ENDLESS: Final = 3000


@dataclass(frozen=True, slots=True)
class Load:
    """A constant load.

    running, waiting: number of sequences to keep in each state. step_s: virtual seconds per step.
    quiet: no call ends and time stands still, so that no call arrives, is demoted or promoted.
    scarce: contexts have about 8,000 tokens, of which the first 6,144 are one of eight prefixes;
    blocks suffice for about `running` of them, with twice as many slots. tenants: number of tenants
    that alternate.
    """

    running: int = 256
    waiting: int = 1000
    step_s: float = 0.025
    quiet: bool = False
    asynchronous: bool = True
    seed: int = 0
    scarce: bool = False
    tenants: int = 1

    @property
    def slots(self) -> int:
        """Number of sequences that may run."""
        return self.running * (2 if self.scarce else 1)

    @property
    def max_length(self) -> int:
        """Tokens of the longest context."""
        return 9216 if self.scarce else 4096

    @property
    def blocks(self) -> int:
        """Number of KV blocks.

        Unless blocks are scarce, they suffice for all running sequences at full length.
        """
        if not self.scarce:
            return self.running * self.max_length // BLOCK + 1
        alone = sum(_REST) // 2 + sum(_ANSWER) // 2
        return (_KINDS * _SHARED + self.running * alone) // BLOCK + 1


@dataclass(frozen=True, slots=True)
class Call:
    """A future request. service_s, waiting_s: of its program's finished calls, in seconds.
    budget_s: the time until its target, None without one. cost_s: its predicted service.
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


def calls(load: Load) -> Iterator[Call]:
    """Yield calls without end, the same for the same seed.

    The attained service of their programs spreads over all queues, and most programs are young. Two
    of three calls have a target, 1.5 to 20 times their cost away. Prompts have 64 to 512 tokens
    (6,656 to 8,192 if blocks are scarce), answers 50 to 450.
    """
    numbers, targets = random.Random(load.seed), random.Random(load.seed)
    count = 0
    lengths = _REST if load.scarce else _PROMPT
    kinds = [tuple(numbers.choices(range(512), k=_SHARED)) for _ in range(_KINDS * load.scarce)]
    while True:
        service = numbers.lognormvariate(1.0, 1.6)
        call = Call(
            name=f"call-{count}",
            program=f"program-{count}",
            service_s=service,
            waiting_s=service * numbers.uniform(0.0, 2.0),
            prompt=(numbers.choice(kinds) if kinds else ())
            + tuple(numbers.choices(range(512), k=numbers.randint(*lengths))),
            tokens=_ENDLESS if load.quiet else numbers.randint(*_ANSWER),
            tenant=f"tenant-{count % load.tenants}" if load.tenants > 1 else "",
        )
        cost_s = call.tokens * load.step_s
        budget_s = targets.uniform(1.5, 20.0) * cost_s
        yield replace(call, budget_s=budget_s if count % 3 else None, cost_s=cost_s)
        count += 1


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    schedule_s, update_s: seconds of `schedule()` and of the `update_from_output()` after it.
    scheduled: sequences in the step. admitted: those from the waiting queue.
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
        self._calls = calls(load)
        self._arrived = 0
        self._depth = 2 if load.asynchronous else 1
        self._flying: deque[tuple[Any, list[str]]] = deque()
        self._hasher = get_request_block_hasher(BLOCK, sha256)

    def step(self) -> Step:
        """Replace the calls that have ended, then run one step."""
        while len(self.scheduler.requests) < self._load.running + self._load.waiting:
            self._arrive(next(self._calls))
        begun = time.perf_counter()
        output = self.scheduler.schedule()
        scheduled = time.perf_counter() - begun
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
            sampled_token_ids=[[7] if name in ready else [] for name in names],
        )
        begun = time.perf_counter()
        self.scheduler.update_from_output(output, result)
        return time.perf_counter() - begun

    def _arrive(self, call: Call) -> None:
        self._arrived += 1
        context = CallContext(
            call.name,
            call.program,
            service_s=call.service_s,
            waiting_s=call.waiting_s,
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
        CostModel(load.step_s), load.slots, STEP_TOKENS, load.blocks, BLOCK, context=load.max_length
    )
    weft = {"weft": {"policy": policy}}
    stock_config = vllm_config(shape, load.asynchronous, scheduling_policy="priority")
    ours_config = vllm_config(shape, load.asynchronous, additional_config=weft)
    stock_kind = stock_config.scheduler_config.get_scheduler_cls()
    stock = Replica(scheduler_of(stock_kind, stock_config, shape), load)
    ours = Replica(scheduler_of(WeftScheduler, ours_config, shape), load)
    ours.scheduler.clock = lambda: ours.now
    return {STOCK: stock, OURS: ours}
