"""Figures of `weft bench sim`: a row for each balancer and order, means over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from weft_bench.report.rows import Column, Rows
from weft_bench.stats import mean, percentile
from weft_bench.studies.cells import estimate

if TYPE_CHECKING:
    from weft_bench.virtual.records import Simulation

# (balancer, order) to one simulation a seed.
Simulated = Mapping[tuple[str, str], Sequence["Simulation"]]


def _response(share: float) -> Callable[[Simulation], float]:
    return lambda s: percentile([program.response_s for program in s.programs], share)


def _hit_rate(found: Simulation) -> float:
    prompt = sum(program.prompt_tokens for program in found.programs)
    return sum(program.cached_tokens for program in found.programs) / prompt if prompt else 0.0


# Name, unit, heading, and the figure of one simulation.
_FIGURES: Final[tuple[tuple[str, str, str, Callable[[Simulation], float]], ...]] = (
    (
        "response_mean",
        "s",
        "program latency mean, s",
        lambda s: mean([program.response_s for program in s.programs]),
    ),
    ("response_p50", "s", "p50, s", _response(0.50)),
    ("response_p95", "s", "p95, s", _response(0.95)),
    ("response_p99", "s", "p99, s", _response(0.99)),
    (
        "program_token_latency",
        "s/token",
        "token latency, s/token",
        lambda s: mean([p.token_latency_s for p in s.programs]),
    ),
    ("waiting_mean", "s/program", "waiting, s", lambda s: mean([p.waiting_s for p in s.programs])),
    # The bound beta of Agentix: the program that starved most.
    (
        "wait_over_service_max",
        "1",
        "worst wait / service",
        lambda s: max(p.waiting_s / p.service_s for p in s.programs if p.service_s),
    ),
    ("prefix_hit_rate", "1", "hit rate", _hit_rate),
    ("preemptions", "times", "preemptions", lambda s: sum(p.preemptions for p in s.programs)),
    ("migrations", "times", "migrations", lambda s: sum(p.migrations for p in s.programs)),
    (
        "blocks_swapped_out",
        "blocks",
        "blocks swapped",
        lambda s: sum(call.blocks_swapped_out for call in s.calls),
    ),
    ("end", "s", "makespan, s", lambda s: s.end_s),
)
_WITH_INTERVAL: Final = ("response_mean", "response_p95")
LABELS: Final = ("", "balancer", "order")
COLUMNS: Final = tuple(
    column
    for name, unit, heading, _ in _FIGURES
    for column in (
        Column(name, unit, heading),
        Column(f"{name}_half_width", unit, "±" if name in _WITH_INTERVAL else "", ".2g"),
    )
)


def rows(simulated: Simulated) -> Rows:
    """Return means over seeds, and half of the 95% interval of each as `..._half_width`."""
    found = {}
    for (balancer, policy), runs in simulated.items():
        values = {}
        for name, _, _, of in _FIGURES:
            one = estimate([of(run) for run in runs])
            values[name], values[f"{name}_half_width"] = one.middle, one.half_width
        found["simulated", balancer, policy] = values
    return found
