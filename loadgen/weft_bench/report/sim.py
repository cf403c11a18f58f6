"""What simulations say: a row for each order and balancer, means over seeds with their interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from weft_bench.report.figures import Figure
from weft_bench.stats import half_width, mean, percentile

if TYPE_CHECKING:
    from weft_bench.sim.records import Simulation

# (balancer, order) to one simulation a seed.
Simulated = Mapping[tuple[str, str], Sequence["Simulation"]]


def _responses(found: Simulation) -> list[float]:
    return [program.response_s for program in found.programs]


def _hit_rate(found: Simulation) -> float:
    prompt = sum(program.prompt_tokens for program in found.programs)
    return sum(program.cached_tokens for program in found.programs) / prompt if prompt else 0.0


# Name, unit, heading, and the figure of one simulation.
_FIGURES: Final[tuple[tuple[str, str, str, Callable[[Simulation], float]], ...]] = (
    ("response_mean", "s", "program latency mean", lambda s: mean(_responses(s))),
    ("response_p50", "s", "p50", lambda s: percentile(_responses(s), 0.50)),
    ("response_p95", "s", "p95", lambda s: percentile(_responses(s), 0.95)),
    ("response_p99", "s", "p99", lambda s: percentile(_responses(s), 0.99)),
    (
        "program_token_latency",
        "s/token",
        "token latency",
        lambda s: mean([p.token_latency_s for p in s.programs]),
    ),
    ("waiting_mean", "s/program", "waiting", lambda s: mean([p.waiting_s for p in s.programs])),
    # What Agentix bounds by beta: the program that starved most.
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
        "swapped",
        lambda s: sum(call.blocks_swapped_out for call in s.calls),
    ),
    ("end", "s", "makespan", lambda s: s.end_s),
)


def figures(simulated: Simulated) -> list[Figure]:
    """`simulated/balancer/order/...`: means over seeds, and `..._half_width` of their interval."""
    found = []
    for (balancer, policy), runs in simulated.items():
        at = f"simulated/{balancer}/{policy}"
        for name, unit, _, of in _FIGURES:
            values = [of(run) for run in runs]
            found.append(Figure(f"{at}/{name}", mean(values), unit))
            found.append(Figure(f"{at}/{name}_half_width", half_width(values), unit))
    return found


def table(simulated: Simulated, title: str) -> Table:
    """A row an order and balancer; the latency's interval where there are several seeds."""
    shown = Table(title=f"simulated: {title}", title_justify="left")
    shown.add_column("balancer")
    shown.add_column("order")
    for _, unit, heading, _ in _FIGURES:
        shown.add_column(heading if unit in ("1", "times", "blocks") else f"{heading}, {unit}")
    for column in shown.columns[2:]:
        column.justify = "right"
    for (balancer, policy), runs in simulated.items():
        cells = []
        for name, _, _, of in _FIGURES:
            values = [of(run) for run in runs]
            cell = f"{mean(values):.4g}"
            if name in ("response_mean", "response_p95") and len(values) > 1:
                cell += f" ± {half_width(values):.2g}"
            cells.append(cell)
        shown.add_row(balancer, policy, *cells)
    return shown


def show(simulated: Simulated, title: str) -> None:
    """Print the table as wide as it needs to be."""
    shown = table(simulated, title)
    needed = Console(width=400).measure(shown).maximum
    Console(width=max(Console().width, needed)).print(shown)
