"""Figures of `weft bench sim`: a row for each balancer and order, means over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from weft_bench.report.rows import Column, Rows
from weft_bench.stats import distribution, mean
from weft_bench.studies.cells import estimate

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
