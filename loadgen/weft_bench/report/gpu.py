"""What a bench on real engines says: figures of a cell, and ours over each baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import exp, log
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from weft_bench.report.figures import Figure
from weft_bench.stats import mean, percentile

if TYPE_CHECKING:
    from weft_bench.gpu.play import Outcome

Cells = Mapping[str, Mapping[str, float]]
OURS: Final = "ours"
BASELINES: Final = ("vllm", "vllm-opt", "mlfq")

_UNITS: Final = {
    "programs": "programs",
    "cut": "programs",
    "errors": "programs",
    "rate": "programs/s",
    "seconds": "s",
    "calls": "calls",
    "output_tokens": "tokens",
    "tokens_per_s": "tokens/s",
    "response_mean": "s",
    "response_p50": "s",
    "response_p95": "s",
    "response_p99": "s",
    "program_token_latency": "s/token",
    "prefix_hit_rate": "1",
    "preemptions": "times",
    "displacements": "times",
    "recomputed_tokens": "tokens",
    "blocks_swapped_out": "blocks",
    "blocks_swapped_in": "blocks",
}
# Heading and figure, of the rows that show values.
_SHOWN: Final = (
    ("mean, s", "response_mean"),
    ("p95, s", "response_p95"),
    ("p99, s", "response_p99"),
    ("s/token", "program_token_latency"),
    ("tokens/s", "tokens_per_s"),
    ("hit rate", "prefix_hit_rate"),
    ("preempted", "preemptions"),
    ("swapped out", "blocks_swapped_out"),
    ("cut", "cut"),
    ("errors", "errors"),
)
_COMPARED: Final = ("response_mean", "program_token_latency", "response_p95", "response_p99")
_WIDEST: Final = 400


def summarise(outcome: Outcome) -> dict[str, float]:
    """The figures of one cell, by the names of _UNITS.

    A program that was cut counts with the time that it had taken by then, and with all tokens that
    it would have had: its latency and its token latency were at least that. One with an error
    counts as an error and in nothing else but what the engine did.
    """
    results = outcome.play.programs
    kept = [
        (result, sum(call.max_tokens for call in program.calls))
        for result, program in zip(results, outcome.programs, strict=True)
        if not result.errors
    ]
    times = [result.response_s for result, _ in kept]
    engine = outcome.engine
    return {
        "programs": len(results),
        "cut": sum(result.cut for result in results),
        "errors": len(results) - len(kept),
        "rate": outcome.rate,
        "seconds": outcome.seconds,
        "calls": sum(result.calls for result in results),
        "output_tokens": engine.output_tokens,
        "tokens_per_s": engine.output_tokens / outcome.seconds if outcome.seconds else 0.0,
        "response_mean": mean(times),
        "response_p50": percentile(times, 0.50),
        "response_p95": percentile(times, 0.95),
        "response_p99": percentile(times, 0.99),
        # Agentix 6.2: a program's response time over its tokens, mean over programs.
        "program_token_latency": mean([r.response_s / tokens for r, tokens in kept if tokens]),
        "prefix_hit_rate": engine.hit / engine.queried if engine.queried else 0.0,
        "preemptions": engine.preemptions,
        "displacements": outcome.play.engines.displacements,
        "recomputed_tokens": outcome.play.engines.recomputed_tokens,
        "blocks_swapped_out": outcome.play.engines.blocks_swapped_out,
        "blocks_swapped_in": outcome.play.engines.blocks_swapped_in,
    }


def figures(cells: Cells) -> list[Figure]:
    """All cells' figures, `workload/load/system/figure`; then ours over each baseline."""
    found = [
        Figure(f"{key}/{name}", value, _UNITS[name])
        for key, values in sorted(cells.items())
        for name, value in values.items()
    ]
    for scene in scenes(cells):
        for baseline in BASELINES:
            for name in _COMPARED:
                value = ratio(cells, scene, baseline, name)
                if value is not None:
                    found.append(Figure(f"{scene}/ours_over_{baseline}/{name}", value, "1"))
    return found


def scenes(cells: Cells) -> list[str]:
    """The scenes (workload/load) of which there is a cell."""
    return sorted({key.rpartition("/")[0] for key in cells})


def ratio(cells: Cells, scene: str, baseline: str, name: str) -> float | None:
    """A figure of ours over the baseline's; None where it cannot be told."""
    ours, theirs = cells.get(f"{scene}/{OURS}"), cells.get(f"{scene}/{baseline}")
    if ours is None or theirs is None or not theirs[name]:
        return None
    return ours[name] / theirs[name]


def bound(cells: Cells, scene: str, baseline: str) -> str:
    """What cut programs make of a ratio: ">" where it is at least that, "<" at most, "?" where both
    had some, "" where it is as it stands."""
    ours, theirs = (bool(cells[f"{scene}/{name}"]["cut"]) for name in (OURS, baseline))
    return {(True, True): "?", (True, False): ">", (False, True): "<"}.get((ours, theirs), "")


def rate_at(curve: Sequence[tuple[float, float]], latency: float) -> tuple[float, str] | None:
    """The rate at which a system has this latency.

    curve: (programs a second, latency), measured. Between two rates the latency is taken to grow
    exponentially. Returns the rate and "", or the curve's end and ">" where it stays below, its
    beginning and "<" where it is above from there; None of nothing.
    """
    points = sorted(curve)
    if not points:
        return None
    if points[0][1] > latency:
        return points[0][0], "<"
    for (low, before), (high, after) in pairwise(points):
        if before <= latency < after:
            if before <= 0:
                return low, ""
            share = (log(latency) - log(before)) / (log(after) - log(before))
            return exp(log(low) + share * (log(high) - log(low))), ""
    return points[-1][0], ">"


def equal_latency(cells: Cells, workload: str, baseline: str) -> str:
    """How many times the baseline's rate ours takes at the baseline's latency, by the figure of
    Agentix 6.2; where that is its middle load. "-" where it cannot be told."""
    theirs = _curve(cells, workload, baseline)
    ours = _curve(cells, workload, OURS)
    if not theirs or not ours:
        return "-"
    rate, latency = theirs[len(theirs) // 2]
    found = rate_at(ours, latency)
    return "-" if found is None or not rate else f"{found[1]}{found[0] / rate:.2f}"


def _curve(cells: Cells, workload: str, system: str) -> list[tuple[float, float]]:
    return sorted(
        (values["rate"], values["program_token_latency"])
        for key, values in cells.items()
        if key.startswith(f"{workload}/") and key.endswith(f"/{system}")
    )


def tables(cells: Cells, device: str) -> list[Table]:
    """The cells, ours over each baseline, and rates at equal latency. device: named in each title:
    no figure of a CPU looks like one of a GPU."""
    shown = _table(f"{device}: figures", ("workload", "load", "system"), [h for h, _ in _SHOWN])
    for scene in scenes(cells):
        workload, _, load = scene.partition("/")
        for system in (*BASELINES, OURS):
            values = cells.get(f"{scene}/{system}")
            if values is not None:
                row = [_number(values, name) for _, name in _SHOWN]
                shown.add_row(workload, load, system, *row)
    ratios = _table(f"{device}: ours over", ("workload", "load", "baseline"), _COMPARED)
    for scene in scenes(cells):
        workload, _, load = scene.partition("/")
        for baseline in BASELINES:
            over = [ratio(cells, scene, baseline, name) for name in _COMPARED]
            if any(value is not None for value in over):
                sign = bound(cells, scene, baseline)
                row = ["-" if value is None else f"{sign}{value:.2f}" for value in over]
                ratios.add_row(workload, load, baseline, *row)
    title = f"{device}: ours, programs a second over the baseline's at its latency"
    rates = _table(title, ("workload",), BASELINES)
    for workload in sorted({scene.partition("/")[0] for scene in scenes(cells)}):
        found = [equal_latency(cells, workload, baseline) for baseline in BASELINES]
        if set(found) != {"-"}:
            rates.add_row(workload, *found)
    return [table for table in (shown, ratios, rates) if table.row_count]


def show(cells: Cells, device: str) -> None:
    """Print the tables, in full where it is no terminal."""
    found = tables(cells, device)
    needed = max((Console(width=_WIDEST).measure(t).maximum for t in found), default=0)
    console = Console(width=max(Console().width, needed))
    for table in found:
        console.print(table)
    if any(values["cut"] for values in cells.values()):
        print("times of cells with cut programs are lower bounds; ratios of two such tell little")


def _table(title: str, names: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _number(values: Mapping[str, float], name: str) -> str:
    value = values[name]
    bound = ">" if values["cut"] and name in _COMPARED else ""
    return bound + (f"{value:.4g}" if value % 1 else f"{value:.0f}")
