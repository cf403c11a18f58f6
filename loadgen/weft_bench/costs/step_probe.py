"""Measures the step durations of a running engine over HTTP.

A Completions request with several prompts is one call of several sequences that arrive at once. The
engine reports their service: the summed duration of their steps. With one output token this is the
prefill of all prompts; the difference to more tokens is decode alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Any, Final
from uuid import uuid4

from weft_engine.step_cost import attention_pairs
from weft_engine.wire import CALL_HEADER, REPORT_HEADER, XARG_CALL, CallReport

from weft_bench.costs.fit import Measured
from weft_bench.drive.client import Client
from weft_bench.drive.gateway import served
from weft_bench.stats import percentile
from weft_bench.workloads.traces.coding import FIRST_ID, IDS

# Concurrent sequences, and tokens of each prompt. Combinations beyond the engine's capacity are
# skipped. The large ones are for GPUs, where only many sequences or tokens make a step long enough.
DECODES: Final = (
    (1, 32), (1, 1024), (1, 4096), (1, 16_384), (1, 32_000),
    (2, 512), (4, 32), (4, 512), (8, 64), (8, 256), (8, 900), (32, 200), (64, 32), (128, 16),
)  # fmt: skip
PREFILLS: Final = (
    (1, 32), (1, 128), (1, 512), (1, 1024), (1, 4096), (1, 16_384), (1, 32_000), (1, 100_000),
    (4, 128), (4, 384), (8, 900),
)  # fmt: skip
_TOKENS: Final = 33
_CALL_S: Final = 600.0
COMPLETIONS: Final = "/v1/completions"


class ProbeError(RuntimeError):
    """The engine cannot be measured. The message says why."""


@dataclass(frozen=True, slots=True)
class Probed:
    """Durations of steps, and the seconds of a call outside of its steps."""

    steps: list[Measured]
    call_s: float


async def probe(
    url: str,
    slots: int,
    context: int,
    rounds: int,
    done: Callable[[], None],
    clock: Callable[[], float] = perf_counter,
    step_tokens: int = 0,
) -> Probed:
    """Measure an idle engine at `url`.

    Each figure is the minimum of `rounds`, because other load on the machine only adds time. slots,
    context: the engine's limits on sequences and prompt lengths; larger measurements are skipped.
    step_tokens: skip batches that do not fit into one step; 0 for the context. done: called after
    each measurement. Raises ProbeError.
    """
    steps: list[Measured] = []
    async with Client(url, limit_s=_CALL_S) as client:
        try:
            engine = _Engine(client, (await served(client))[0], rounds, clock)
            # The first calls of an engine are slower than all later ones.
            await engine.time(2, 64, 8)
            between = []
            for sequences, length in within(DECODES, slots, context, step_tokens):
                short = await engine.quickest(sequences, length, 1)
                long = await engine.quickest(sequences, length, _TOKENS)
                count = _TOKENS - 1
                # Use wall time, because the engine does unreported work between two steps.
                seconds = long.wall_s - short.wall_s
                between.append(max(0.0, seconds - long.service_s + short.service_s) / count)
                if seconds > 0:
                    read = count * sequences * (length + count / 2)
                    steps.append(Measured(count, 0, count * sequences, read, 0, seconds))
                done()
            between_s = percentile(between, 0.5)
            beside = []
            for sequences, length in within(PREFILLS, slots, context, step_tokens):
                one = await engine.quickest(sequences, length, 1)
                chunks = range(0, length, step_tokens or context)
                seconds = one.service_s + len(chunks) * between_s
                pairs = sequences * attention_pairs(length, 0)
                tokens = sequences * length
                steps.append(Measured(len(chunks), tokens, 0, sum(chunks), pairs, seconds))
                beside.append(max(0.0, one.wall_s - seconds))
                done()
        except (OSError, ValueError) as error:
            raise ProbeError(f"{url} cannot be measured: {error!r}") from None
    return Probed(steps, percentile(beside, 0.5))


def measurements(slots: int, context: int, step_tokens: int = 0) -> int:
    """Return the number of measurements."""
    grids = (DECODES, PREFILLS)
    return sum(1 for grid in grids for _ in within(grid, slots, context, step_tokens))


def within(
    grid: Sequence[tuple[int, int]], slots: int, context: int, step_tokens: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield the sequences and prompt lengths of a grid that an engine has room for.

    The prompts of several sequences fit into one step, so that all start to decode in the next one.
    A single prompt may take several steps.
    """
    for sequences, length in grid:
        tokens = sequences * (length + _TOKENS)
        room = context if sequences == 1 else min(context, step_tokens or context)
        if sequences <= slots and tokens < room:
            yield sequences, length


@dataclass(frozen=True, slots=True)
class Times:
    """One call's service as reported by the engine, and its wall time, seconds."""

    service_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class _Engine:
    client: Client
    model: str
    rounds: int
    clock: Callable[[], float]

    async def quickest(self, sequences: int, length: int, tokens: int) -> Times:
        found = [await self.time(sequences, length, tokens) for _ in range(self.rounds)]
        return min(found, key=lambda times: times.wall_s)

    async def time(self, sequences: int, length: int, tokens: int) -> Times:
        """Time one call with new random prompts.

        sequences: number of prompts. length: tokens of each. tokens: output tokens of each.
        """
        body = random_prompts(self.model, sequences, length, tokens)
        # Encoding a long prompt takes time.
        data, headers = json.dumps(body).encode(), {CALL_HEADER: body["vllm_xargs"][XARG_CALL]}
        begun = self.clock()
        answer = await self.client.post(COMPLETIONS, data, headers)
        wall_s = self.clock() - begun
        answer.json()
        report = answer.headers.get(REPORT_HEADER.lower())
        if report is None:
            raise ProbeError(
                f"{self.client.base_url} reports no service: not an engine of `weft replica`"
            )
        return Times(CallReport.from_json(report).service_s, wall_s)


def random_prompts(model: str, sequences: int, length: int, tokens: int) -> dict[str, Any]:
    """Return the body of a call with new random prompts. See `_Engine.time`."""
    call = f"probe-{uuid4().hex}"
    draw = Random(call)
    prompts = [[FIRST_ID + draw.randrange(IDS) for _ in range(length)] for _ in range(sequences)]
    return {
        "model": model,
        "prompt": prompts,
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
        "vllm_xargs": {XARG_CALL: call},
    }
