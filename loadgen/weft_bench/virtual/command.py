"""`weft bench sim`: plays programs in virtual time on the production scheduler and router."""

from __future__ import annotations

import cProfile
import os
import pstats
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from rich.progress import Progress

from weft_bench.cli.simulator import SimOptions
from weft_bench.report.figures import finish, refuse, status
from weft_bench.report.rows import Column, Rows, figures, show
from weft_bench.stats import distribution, mean
from weft_bench.studies.cells import estimate
from weft_bench.workloads.arrivals import arrivals
from weft_bench.workloads.schema import TraceError
from weft_bench.workloads.streams import stream

if TYPE_CHECKING:
    from weft_bench.virtual.records import Simulation


# (balancer, order) to one simulation a seed.
Simulated = Mapping[tuple[str, str], Sequence["Simulation"]]


# The figures with a column for their interval on the terminal.
_WITH_INTERVAL: Final = ("response_mean", "response_p95")
_FIGURES: Final = (
    Column("response_mean", "s", "program latency mean, s"),
    Column("response_p50", "s", "p50, s"),
    Column("response_p95", "s", "p95, s"),
    Column("response_p99", "s", "p99, s"),
    Column("program_token_latency", "s/token", "token latency, s/token"),
    Column("waiting_mean", "s/program", "waiting, s"),
    Column("wait_over_service_max", "1", "worst wait / service"),
    Column("prefix_hit_rate", "1", "hit rate"),
    Column("preemptions", "times", "preemptions"),
    Column("migrations", "times", "migrations"),
    Column("blocks_swapped_out", "blocks", "blocks swapped"),
    Column("end", "s", "makespan, s"),
)
LABELS: Final = ("", "balancer", "order")
COLUMNS: Final = tuple(
    column
    for one in _FIGURES
    for column in (
        one,
        Column(
            f"{one.figure}_half_width", one.unit, "±" if one.figure in _WITH_INTERVAL else "", ".2g"
        ),
    )
)


def values(found: Simulation) -> dict[str, float]:
    """Return the figures of one simulation."""
    programs = found.programs
    prompt = sum(program.prompt_tokens for program in programs)
    cached = sum(program.cached_tokens for program in programs)
    return {
        **distribution("response", [program.response_s for program in programs]),
        "program_token_latency": mean([program.token_latency_s for program in programs]),
        "waiting_mean": mean([program.waiting_s for program in programs]),
        # The bound beta of Agentix: the program that starved most.
        "wait_over_service_max": max(p.waiting_s / p.service_s for p in programs if p.service_s),
        "prefix_hit_rate": cached / prompt if prompt else 0.0,
        "preemptions": sum(program.preemptions for program in programs),
        "migrations": sum(program.migrations for program in programs),
        "blocks_swapped_out": sum(call.blocks_swapped_out for call in found.calls),
        "end": found.end_s,
    }


def rows(simulated: Simulated) -> Rows:
    """Return means over seeds, and half of the 95% interval of each as `..._half_width`."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for (balancer, policy), runs in simulated.items():
        row = found["simulated", balancer, policy] = {}
        played = [values(run) for run in runs]
        for name in played[0]:
            one = estimate([each[name] for each in played])
            row[name], row[f"{name}_half_width"] = one.middle, one.half_width
    return found


# Number of functions in a profile.
_PROFILED: Final = 60


def run(options: SimOptions) -> int:
    """Simulate and report.

    Returns the exit status: 1 if an invariant fails, 2 if vLLM is missing or an option is invalid.
    """
    # vLLM logs at length how it starts a model.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        from weft_bench.virtual.replica import SimulationError
    except (ImportError, RuntimeError) as error:
        return refuse("sim", f"vLLM is required: {error}")
    try:
        begun = time.process_time()
        _start(options)
        started = time.process_time()
        profile = cProfile.Profile() if options.profile else None
        with profile or nullcontext():
            found = _simulate(options)
    except (TraceError, SimulationError, ValueError) as error:
        return refuse("sim", error)
    used = time.process_time() - started
    played = min(len({c.program for c in one.calls}) for runs in found.values() for one in runs)
    programs = f"{played} programs"
    if played < options.programs:
        programs += f" of {options.programs} requested"
    title = (
        f"{options.workload}, {programs} at {options.rate:g}/s, "
        f"{options.replicas} x {options.preset}, {options.seeds} seeds"
    )
    if options.arrivals != "poisson":
        title += f", {options.arrivals} arrivals"
    if options.steady:
        title += ", only programs of the steady middle"
    table = rows(found)
    show(f"simulated: {title}", LABELS, table, COLUMNS)
    calls = [call for runs in found.values() for one in runs for call in one.calls]
    tokens = sum(call.prompt_tokens + call.output_tokens for call in calls)
    print(
        f"{len(calls):,} calls simulated in {used:.1f} CPU seconds: {len(calls) / used:,.0f} calls "
        f"and {tokens / used:,.0f} tokens a second; starting vLLM took {started - begun:.1f} more"
    )
    if profile is not None:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(_PROFILED)
    configuration = {**asdict(options), "simulated": True, "programs_played": played}
    finish("sim", options.json_file, configuration, figures(table, COLUMNS))
    return status([v for runs in found.values() for one in runs for v in one.violations])


def _start(options: SimOptions) -> None:
    """Make vLLM load its modules, once a process, before the timed part."""
    from weft_engine.emulated.engines import shapes

    from weft_bench.virtual.engine import EngineSettings, build_scheduler

    build_scheduler(shapes(options.preset, 1)[0], EngineSettings("fcfs"))


def _simulate(options: SimOptions) -> dict[tuple[str, str], list[Simulation]]:
    from weft_engine.emulated.engines import shapes

    from weft_bench.virtual.engine import EngineSettings
    from weft_bench.virtual.records import steady
    from weft_bench.virtual.workload import BYTES_PER_TOKEN, load
    from weft_bench.virtual.world import Setup, simulate

    engines = shapes(options.preset, options.replicas, options.slots, options.kv_blocks)
    orders: dict[str, Any] = {}
    if options.first_quantum_s:
        orders["first_quantum_s"] = options.first_quantum_s
    found: dict[tuple[str, str], list[Simulation]] = {}
    with Progress(transient=True) as progress:
        kinds = [(b, p) for b in options.balancers for p in options.policies]
        bar = progress.add_task("simulated", total=options.seeds * len(kinds))
        for seed in range(options.seeds):
            # All orders and balancers play the same programs at the same times.
            programs = load(
                options.workload, seed, options.programs, min(e.context for e in engines)
            )
            draw = stream(seed, "arrivals")
            recorded = [program.arrival_s for program in programs]
            times = arrivals(options.arrivals, draw, options.rate, recorded)
            for balancer, policy in kinds:
                settings = EngineSettings(
                    policy=policy,
                    options=orders,
                    tags=options.tags,
                    swap_gib=options.swap_gib,
                    prefix_cache=options.prefix_cache,
                    naive=options.naive,
                    asynchronous=options.asynchronous,
                )
                setup = Setup(
                    engines, settings, balancer, seed=seed, bytes_per_token=BYTES_PER_TOKEN
                )
                played = simulate(programs, times, setup)
                if options.steady:
                    played = replace(played, programs=steady(played.programs).programs)
                found.setdefault((balancer, policy), []).append(played)
                progress.advance(bar)
    return found
