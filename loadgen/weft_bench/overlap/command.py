"""`weft bench overlap`: agents' requests with increasing overlap, on the same engines.

The rows are those of Sutradhara's Table 2. Each adds one feature to the previous row. All rows play
the same requests with the same arrivals. The order of the rows changes with each seed, so that
other load on the machine affects all rows equally.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from typing import Any, Final
from uuid import uuid4

from weft_bench.cli.parts import OverlapOptions
from weft_bench.drive.client import Client
from weft_bench.drive.gateway import OrderError, kept_order, set_order
from weft_bench.overlap.player import ROWS, OverlapPlayer, Plan, Result, Row, slowdown
from weft_bench.overlap.probe import Machine, Probe, ProbeError
from weft_bench.overlap.prompts import RESERVE, ready
from weft_bench.overlap.shape import LARGEST_PROMPT, ShapeRequest, generate
from weft_bench.report import rows as report
from weft_bench.report.figures import finish, refuse, status
from weft_bench.report.rows import Column, figures
from weft_bench.stack.local import StackError, configuration, engine_variables, stack_at
from weft_bench.stack.local import progress as progress_of
from weft_bench.stats import mean, percentile
from weft_bench.workloads.streams import poisson_arrivals, stream

# Row to results, seed by seed.
Rows = Mapping[str, Sequence[Sequence[Result]]]

# Table 2: reduction of the median FTR and end-to-end latency against the baseline, percent.
PAPER: Final = dict(
    zip((row.name for row in ROWS), ((0, 0), (6.1, 3.5), (14.4, 9.0), (16.2, 10.8)), strict=True)
)
_LATENCIES: Final = ("ftr_p50", "ftr_p90", "e2e_p50", "e2e_p90")
COLUMNS: Final = (
    Column("requests", "requests"),
    Column("errors", "requests", "errors"),
    *(Column(name, "s", name.replace("_", " ").upper(), ".3f") for name in _LATENCIES),
    Column("ftr_p50_less", "%", "less FTR, %", ".1f"),
    Column("e2e_p50_less", "%", "less E2E, %", ".1f"),
    Column("paper_ftr_less", "%", "paper: FTR", ".1f"),
    Column("paper_e2e_less", "%", "E2E", ".1f"),
    Column("ftr_p90_less", "%"),
    Column("e2e_p90_less", "%"),
    Column("ftr_less_paired", "%", "less FTR, paired, %", ".1f"),
    Column("ftr_less_paired_p25", "%", "p25", ".0f"),
    Column("ftr_less_paired_p75", "%", "p75", ".0f"),
    Column("saved_prefill_s", "s", "prefill saved, s", ".3f"),
    Column("saved_dispatch_s", "s", "dispatch saved, s", ".3f"),
    Column("extended", "turns", "extended"),
    Column("dispatched", "tools", "dispatched"),
    Column("hit_rate", "1", "cached", ".0%"),
    Column("tool_share_p50"),
    Column("tool_share_p90"),
)


def summarise(seeds: Sequence[Sequence[Result]]) -> dict[str, float]:
    """Return the figures of one row over all seeds; failed requests only count as errors.

    hit_rate: share of the turns' prompt tokens that was already cached. tool_share: share of FTR
    spent waiting for tools.
    """
    played = [result for results in seeds for result in results]
    good = [result for result in played if not result.errors]
    ftr = [result.ftr_s for result in good]
    e2e = [result.e2e_s for result in good]
    shares = [result.tool_s / result.ftr_s for result in good]
    prompts = sum(result.prompt_tokens for result in good)
    computed = sum(result.computed_tokens for result in good)
    return {
        "requests": len(good),
        "errors": len(played) - len(good),
        "ftr_p50": percentile(ftr, 0.5),
        "ftr_p90": percentile(ftr, 0.9),
        "e2e_p50": percentile(e2e, 0.5),
        "e2e_p90": percentile(e2e, 0.9),
        "extended": sum(result.extended for result in good),
        "dispatched": sum(result.dispatched for result in good),
        "saved_prefill_s": mean([result.saved_s.get("prefill", 0.0) for result in good]),
        "saved_dispatch_s": mean([result.saved_s.get("dispatch", 0.0) for result in good]),
        "hit_rate": 1 - computed / prompts if prompts else 0.0,
        "tool_share_p50": percentile(shares, 0.5),
        "tool_share_p90": percentile(shares, 0.9),
    }


def less(value: float, baseline: float) -> float:
    """Return the reduction of a value against the baseline's, percent."""
    return 100 * (1 - value / baseline) if baseline else 0.0


def paired(ours: Sequence[Sequence[Result]], theirs: Sequence[Sequence[Result]]) -> list[float]:
    """Return the reduction of each request's FTR against the same request in the baseline, percent.

    Requests that failed in either are left out.
    """
    return [
        less(mine.ftr_s, other.ftr_s)
        for results, others in zip(ours, theirs, strict=True)
        for mine, other in zip(results, others, strict=True)
        if not mine.errors and not other.errors
    ]


def rows(played: Rows) -> report.Rows:
    """Return the figures of every row, with reductions against the first row."""
    first, *_ = played.values()
    baseline = summarise(first)
    found = {}
    for name, seeds in played.items():
        values = summarise(seeds)
        for figure in _LATENCIES:
            values[f"{figure}_less"] = less(values[figure], baseline[figure])
        ratios = paired(seeds, first)
        for share, at in ((0.5, ""), (0.25, "_p25"), (0.75, "_p75")):
            values[f"ftr_less_paired{at}"] = percentile(ratios, share)
        values["paper_ftr_less"], values["paper_e2e_less"] = PAPER[name]
        found[(name,)] = values
    return found


def show(played: Rows) -> None:
    """Print the table, and the baseline's tool share with the published one."""
    found = rows(played)
    report.show("FTR and end-to-end latency", ("row",), found, COLUMNS)
    baseline = next(iter(found.values()))
    print(
        f"{baseline['requests']} requests a row; saved: seconds a request, by the calls' receipts; "
        f"tools took {baseline['tool_share_p50']:.0%} of the baseline's FTR at the median and "
        f"{baseline['tool_share_p90']:.0%} at p90 (paper: 32% and 61%)"
    )


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


def run(options: OverlapOptions) -> int:
    """Play and report. Returns the exit status: 1 if a request failed, 2 for invalid input."""
    try:
        with stack_at(options.base_url, lambda: setup(options, os.environ)) as base:
            played, notes = asyncio.run(_measure(options, base))
    except (ProbeError, OrderError, StackError, ValueError) as error:
        return refuse("overlap", error)
    except OSError as error:
        return refuse("overlap", f"request failed: {type(error).__name__} {error}")
    show(played)
    print("; ".join(f"{key} {value}" for key, value in notes.items()))
    told = {**configuration(options), **notes}
    finish("overlap", options.json_file, told, figures(rows(played), COLUMNS))
    failures = [
        f"{name}, request {r.number}: {error}"
        for name, seeds in played.items()
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


async def _measure(
    options: OverlapOptions, base: str
) -> tuple[dict[str, list[list[Result]]], dict[str, Any]]:
    """Return results by row and seed, and notes on the setup."""
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
            results: dict[str, list[list[Result]]] = {row.name: [] for row in ROWS}
            for turn, (seed, plan) in enumerate(plans.items()):
                for row in (*ROWS[turn % len(ROWS) :], *ROWS[: turn % len(ROWS)]):
                    results[row.name].append(await played(row, seed, plan, slower))
        return results, notes


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
