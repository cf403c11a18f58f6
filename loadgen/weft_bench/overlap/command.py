"""`weft bench overlap`: agents' requests with increasing overlap, on the same engines.

The rows are those of Sutradhara's Table 2. Each adds one feature to the previous row. All rows play
the same requests with the same arrivals. The order of the rows changes with each seed, so that
other load on the machine affects all rows equally.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import uuid4

from weft_bench.cli.load import OverlapOptions
from weft_bench.drive.client import Client
from weft_bench.drive.order import OrderError, kept_order, set_order
from weft_bench.overlap.plan import Plan, slowdown
from weft_bench.overlap.player import ROWS, OverlapPlayer, Result, Row
from weft_bench.overlap.probe import Machine, Probe, ProbeError
from weft_bench.overlap.prompts import RESERVE, ready
from weft_bench.overlap.shape import LARGEST_PROMPT, ShapeRequest, generate
from weft_bench.report import overlap as report
from weft_bench.report.figures import finish, status
from weft_bench.report.rows import figures
from weft_bench.stack.local import StackError, configuration, engine_variables, stack_at
from weft_bench.stack.local import progress as progress_of
from weft_bench.stats import mean
from weft_bench.workloads.streams import poisson_arrivals, stream

# Calls run in the order of their requests' arrival, also in the paper's baseline (section 5.1).
ORDER: Final = "program_fifo"
# Mean number of requests in the system in Table 2: 0.0075 per second, each for 61.57 s.
PAPER_LOAD: Final = 0.0075 * 61.57
# Number of median prompts that an engine's cache holds. An A100 of 80 GB has about 40 GB left
# beside Qwen3-14B, at 160 KiB per token and 20,000 tokens per prompt (section 5.1).
CACHED_PROMPTS: Final = 12
# Number of requests to play before all others, to measure the requests' real duration, on which the
# tools' times depend.
_FIRST: Final = 10
_BLOCK: Final = 32


@dataclass(slots=True)
class Measured:
    """The result. rows: results by row and seed. notes: the setup."""

    rows: dict[str, list[list[Result]]] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


def run(options: OverlapOptions) -> int:
    """Play and report. Returns the exit status: 1 if a request failed, 2 for invalid input."""
    try:
        with stack_at(options.base_url, lambda: setup(options, os.environ)) as base:
            measured = asyncio.run(_measure(options, base))
    except (ProbeError, OrderError, StackError, ValueError) as error:
        print(f"weft bench overlap: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"weft bench overlap: request failed: {type(error).__name__} {error}", file=sys.stderr
        )
        return 2
    report.show(measured.rows)
    print("; ".join(f"{key} {value}" for key, value in measured.notes.items()))
    told = {**configuration(options), **measured.notes}
    finish("overlap", options.json_file, told, figures(report.rows(measured.rows), report.COLUMNS))
    failures = [
        f"{name}, request {r.number}: {error}"
        for name, seeds in measured.rows.items()
        for results in seeds
        for r in results
        for error in r.errors
    ]
    return status(failures)


def setup(
    options: OverlapOptions, environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return options of `weft up` and variables for the engines.

    environment: of this process. Its engine settings are kept, and tags are added. Raises
    ValueError if they are not a JSON object.
    """
    unit = (options.max_model_len - RESERVE) / LARGEST_PROMPT
    blocks = options.kv_blocks or int(CACHED_PROMPTS * unit / _BLOCK)
    line = ["--replicas", str(options.replicas), "--policy", ORDER, "--"]
    line += ["--max-model-len", str(options.max_model_len)]
    line += ["--num-gpu-blocks-override", str(blocks)]
    return line, engine_variables(environment, {"WEFT_ENGINE_SETTINGS": {"tags": True}})


async def _measure(options: OverlapOptions, base: str) -> Measured:
    async with Client(base) as client, AsyncExitStack() as stack:
        # Engines that the command starts need no reset.
        await stack.enter_async_context(kept_order(client) if options.base_url else nullcontext())
        await set_order(client, ORDER, reset_cache=True)
        probe = Probe(client)
        with progress_of("requests") as progress:
            first = min(_FIRST, options.requests)
            bar = progress.add_task("probe", total=1 + first + options.seeds * options.requests)
            found = await probe.machine(RESERVE)
            progress.advance(bar)

            async def planned(seed: int, count: int) -> list[Plan]:
                plans = []
                for request in generate(seed, count, options.changed):
                    plans.append(await _plan(probe, found, seed, request))
                    progress.advance(bar)
                return plans

            seeds = range(options.seed, options.seed + options.seeds)
            plans = {seed: await planned(seed, options.requests) for seed in seeds}
            unseen = await planned(seeds.stop, first)

            async def played(row: Row, seed: int, plan: list[Plan], slower: float) -> list[Result]:
                name = f"seed {seed} {row.name}" if seed in plans else "tools' times"
                bar = progress.add_task(name, total=len(plan))
                await set_order(client, ORDER, reset_cache=True)
                player = OverlapPlayer(client, found.model, row, uuid4().hex[:8])
                arrivals = poisson_arrivals(stream(seed, "arrivals"), rate(slower), len(plan))
                works = [one.work(slower) for one in plan]
                return await player.play(works, arrivals, partial(progress.advance, bar))

            def rate(slower: float) -> float:
                whole = [p.e2e_s(slower) for plan in plans.values() for p in plan]
                return options.rate or PAPER_LOAD / mean(whole)

            slower = slowdown(unseen, await played(ROWS[0], seeds.stop, unseen, 1.0))
            notes = _notes(options, found, rate(slower), slower)
            measured = Measured({row.name: [] for row in ROWS}, notes)
            for turn, (seed, plan) in enumerate(plans.items()):
                for row in (*ROWS[turn % len(ROWS) :], *ROWS[: turn % len(ROWS)]):
                    measured.rows[row.name].append(await played(row, seed, plan, slower))
        return measured


async def _plan(probe: Probe, found: Machine, seed: int, request: ShapeRequest) -> Plan:
    turns = ready(seed, request, found.unit_words)
    told = [await probe.answer(found.model, turn) for turn in turns[:-1]]
    prefill_s = sum(found.prefill_s(turn.size * found.unit) for turn in request.turns)
    model_s = prefill_s + sum(seconds for _, seconds in told)
    # The final answer's length scales with the mean tokens of two calls.
    calls = sum(len(turn.calls) for turn in request.turns)
    two_calls = 2 * sum(tokens for tokens, _ in told) / calls
    final = max(1, round(request.final * two_calls))
    return Plan(request, turns, model_s, final, final * found.token_s)


def _notes(options: OverlapOptions, found: Machine, rate: float, slower: float) -> dict[str, Any]:
    one = found.unit
    return {
        "context": found.context,
        "median prompt": f"{one} tokens",
        "its prefill": f"{found.prefill_s(one):.3f} s",
        "a token": f"{1000 * found.token_s:.2f} ms",
        "rate": f"{rate:.3f}/s",
        "turns with another system prompt": f"{options.changed:.0%}",
        "requests take": f"{slower:.2f} of what the probe says",
        "tools' times": "from the shape's shares of FTR and that",
    }
