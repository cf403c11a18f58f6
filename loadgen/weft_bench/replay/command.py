"""`weft bench replay`: the same programs, once per policy, on the same replicas."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import asdict
from functools import partial
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from weft_bench.cli.load import ReplayOptions
from weft_bench.drive.client import Client
from weft_bench.drive.gateway import (
    OrderError,
    count_tokens,
    emulated,
    kept_order,
    served,
    session,
    set_order,
)
from weft_bench.drive.player import Gaps, Play, Player
from weft_bench.report import rows as report
from weft_bench.report.figures import finish, refuse, status
from weft_bench.report.rows import Column, figures
from weft_bench.stack.local import StackError, configuration, engine_variables, stack_at
from weft_bench.stack.local import progress as progress_of
from weft_bench.stats import distribution, mean
from weft_bench.workloads.arrivals import arrivals
from weft_bench.workloads.cutting import bytes_per_token, fitting
from weft_bench.workloads.schema import TraceError, TraceProgram
from weft_bench.workloads.streams import stream
from weft_bench.workloads.synthetic import generate
from weft_bench.workloads.traces.coding import DEFAULT_SHRINK
from weft_bench.workloads.traces.files import read_trace, shrunk

# Policy to its play.
Results = Mapping[str, Play]

COLUMNS: Final = (
    Column("programs", "programs", "programs"),
    Column("calls", "calls", "calls"),
    Column("output_tokens", "tokens", "tokens", ",.0f"),
    # Agentix 6.2: a program's response time over its generated tokens, mean over programs.
    Column("program_token_latency", "s/token", "s/token"),
    Column("response_mean", "s", "mean, s"),
    Column("response_p50", "s", "p50, s"),
    Column("response_p95", "s", "p95, s"),
    Column("response_p99", "s", "p99, s"),
    Column("waiting_mean", "s/program", "waiting, s"),
    Column("service_mean", "s/program", "service, s"),
    Column("prefix_hit_rate", "1", "hit rate"),
    Column("preemptions", "times", "preempted"),
    Column("displacements", "times", "displaced"),
    Column("recomputed_tokens", "tokens", "recomputed", ",.0f"),
    Column("blocks_swapped_out", "blocks", "swapped out", ",.0f"),
    Column("blocks_swapped_in", "blocks", "swapped in", ",.0f"),
    Column("errors", "programs", "errors"),
)
# Figures that rate a policy; the others explain them.
_COMPARED: Final = (
    "program_token_latency", "response_mean", "response_p50", "response_p95", "response_p99",
    "waiting_mean",
)  # fmt: skip
RATIOS: Final = tuple(
    Column(c.figure, "1", c.heading, ".2f") for c in COLUMNS if c.figure in _COMPARED
)


def values(play: Play) -> dict[str, float]:
    """Return the figures of one policy, by the names of COLUMNS.

    Programs with an error only count as errors and in the engines' figures, which are not known by
    program.
    """
    good = [r for r in play.programs if not r.errors]
    times = [r.response_s for r in good]
    prompt = sum(r.prompt_tokens for r in good)
    return {
        "programs": len(good),
        "calls": sum(r.calls for r in good),
        "output_tokens": sum(r.output_tokens for r in good),
        "program_token_latency": mean(
            [r.response_s / r.output_tokens for r in good if r.output_tokens]
        ),
        **distribution("response", times),
        "waiting_mean": mean([r.waiting_s for r in good]),
        "service_mean": mean([r.service_s for r in good]),
        "prefix_hit_rate": sum(r.cached_tokens for r in good) / prompt if prompt else 0.0,
        "preemptions": sum(r.preemptions for r in good),
        **asdict(play.engines),
        "errors": len(play.programs) - len(good),
    }


def rows(results: Results) -> report.Rows:
    """Return the figures of every policy."""
    return {(policy,): values(played) for policy, played in results.items()}


def ratios(results: Results) -> report.Rows:
    """Return the ratio of each other policy's times to the first one's."""
    first, *others = rows(results).items()
    return {
        labels: {name: found[name] / first[1][name] for name in _COMPARED if first[1][name]}
        for labels, found in others
    }


def show(results: Results, title: str) -> None:
    """Print the figures, and the ratios if there are several policies."""
    report.show(title, ("policy",), rows(results), COLUMNS)
    if len(results) > 1:
        report.show(f"over {next(iter(results))}", ("policy",), ratios(results), RATIOS)


def plot(results: Results, title: str, path: Path) -> None:
    """Draw the distribution of program response times, with their means, into a file."""
    from weft_bench.report.plots import figure, save

    picture, ((axis,),) = figure(1, 1, (7.0, 4.0))
    for policy, played in results.items():
        times = sorted(r.response_s for r in played.programs if not r.errors)
        line = axis.ecdf(times, label=policy, linewidth=2)
        axis.axvline(mean(times), color=line.get_color(), linestyle=":")
    axis.set(
        xlabel="program response time, s (dotted: mean)", ylabel="share of programs", xlim=(0, None)
    )
    axis.legend(frameon=False, loc="lower right")
    save(picture, path, title)


# The order that needs the remaining cost of every program.
TOLD_ORDER: Final = "srpt"


class ReplayError(RuntimeError):
    """The replay cannot continue. The message says why."""


def run(options: ReplayOptions) -> int:
    """Replay and report. Returns the exit status: 1 if a program failed, 2 for invalid input."""
    try:
        # Reads the trace before anything starts, to report an unreadable one at once.
        name, programs = _load(options)
        _check_arrivals(options, programs)
        with stack_at(options.base_url, lambda: setup(options, os.environ)) as base:
            results, notes = asyncio.run(_replay(options, base))
    except (TraceError, ReplayError, OrderError, StackError, ValueError) as error:
        return refuse("replay", error)
    # Marks emulated figures, so that they never look like real ones.
    kind = "emulated: " if notes.get("engines") == "emulated" else ""
    title = f"{kind}{name}: {notes['programs']} programs, {options.rate:g}/s, seed {options.seed}"
    show(results, title)
    print("; ".join(f"{key} {value}" for key, value in notes.items()))
    told = {**configuration(options), "trace_name": name, **notes}
    finish("replay", options.json_file, told, figures(rows(results), COLUMNS))
    if options.plot:
        plot(results, title, Path(options.plot))
    failures = [
        f"{r.id}: {e}" for played in results.values() for r in played.programs for e in r.errors
    ]
    return status(failures)


def setup(
    options: ReplayOptions, environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return options of `weft up` and variables for the engines of a bench.

    environment: that of this process; its engine settings apply unless an option overrides them.
    Raises ValueError if they are not JSON.
    """
    line = ["--replicas", str(options.replicas), "--", "--max-num-seqs", str(options.slots)]
    if options.kv_blocks:
        line += ["--num-gpu-blocks-override", str(options.kv_blocks)]
    if options.max_model_len:
        line += ["--max-model-len", str(options.max_model_len)]
    orders: dict[str, Any] = {"first_quantum_s": options.first_quantum_s}
    if TOLD_ORDER in options.policies:
        orders["experiments"] = True
    settings: dict[str, Any] = {"tags": any(options.tags)}
    if options.swap_gib:
        settings["swap_gib"] = options.swap_gib
    ours = {"WEFT_ORDER_OPTIONS": orders, "WEFT_ENGINE_SETTINGS": settings}
    return line, engine_variables(environment, ours)


def _load(options: ReplayOptions, context: int = 0) -> tuple[str, Iterator[TraceProgram]]:
    """Return the workload's name and its programs, more than are played."""
    if options.trace:
        return read_trace(Path(options.trace), options.seed, context)
    return "synthetic tool dialogues", iter(generate(options.seed, options.programs))


async def _replay(options: ReplayOptions, base: str) -> tuple[dict[str, Play], dict[str, Any]]:
    async with Client(base) as client, AsyncExitStack() as stack:
        model, context = await served(client)
        only_emulated = await _emulated(client)
        # Engines that this bench starts end with it.
        await stack.enter_async_context(kept_order(client) if options.base_url else nullcontext())
        # Set every policy once, to report a rejected one before the first play.
        for policy in options.policies:
            await set_order(client, policy, reset_cache=True)
        trace, programs = _load(options, context)
        first = next(programs)
        probe = f"probe-{uuid4().hex[:8]}"
        count = partial(count_tokens, client, model, program=probe)
        ratio = await bytes_per_token(first.calls[-1].messages, count)
        await client.delete(session(probe))
        programs = chain([first], programs)
        ready = list(
            islice(fitting(programs, context, ratio, options.output_scale), options.programs)
        )
        if not ready:
            raise ReplayError(f"no program fits a context of {context} tokens")
        recorded = [program.arrival_s for program in ready]
        times = arrivals(options.arrivals, stream(options.seed, "arrivals"), options.rate, recorded)
        notes: dict[str, Any] = {
            "programs": len(ready),
            "calls": sum(len(p.calls) for p in ready),
            "cut at the context": sum(p.cut for p in ready),
            "first message shortened": sum(p.trimmed for p in ready),
            "context": context,
            "bytes per token": round(ratio, 2),
        }
        if only_emulated:
            notes["engines"] = "emulated"
        if shrunk(trace):
            notes["lengths divided by"] = DEFAULT_SHRINK
        gaps = Gaps(options.gap_scale, options.max_gap_s)
        results: dict[str, Play] = {}
        with progress_of("calls") as progress:
            for policy, tagged in product(options.policies, options.tags):
                name = variant(policy, tagged, options.tags)
                await set_order(client, policy, reset_cache=True)
                bar = progress.add_task(name, total=notes["calls"])
                told = policy == TOLD_ORDER
                player = Player(
                    client, model, uuid4().hex[:8], gaps, tell_work=told, tell_tags=tagged
                )
                try:
                    results[name] = await player.play(ready, times, partial(progress.advance, bar))
                except (OSError, ValueError) as error:
                    raise ReplayError(f"cannot read the engines' state: {error}") from None
        return results, notes


def _check_arrivals(options: ReplayOptions, programs: Iterator[TraceProgram]) -> None:
    """Raise ReplayError if no program would ever arrive."""
    first = next(programs, None)
    if first is None:
        raise ReplayError(f"{options.trace} has no programs")
    draw = stream(options.seed, "arrivals")
    try:
        arrivals(options.arrivals, draw, options.rate, [first.arrival_s])
    except ValueError as error:
        raise ReplayError(f"{error}") from None


def variant(policy: str, tagged: bool, tags: Sequence[bool]) -> str:
    """Return the name of a play: the policy, and the tags if they vary."""
    return policy if len(tags) == 1 else f"{policy} {'tags' if tagged else 'plain'}"


async def _emulated(client: Client) -> bool:
    try:
        return emulated((await client.get("/weft/state")).json())
    except (OSError, ValueError) as error:
        raise ReplayError(str(error)) from None
