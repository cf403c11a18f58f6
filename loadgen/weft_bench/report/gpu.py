"""Figures of `weft bench gpu`: those of each cell, and ratios of Weft to each baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from weft_bench.report import rows as report
from weft_bench.report.figures import Figure
from weft_bench.report.rows import Column
from weft_bench.stats import distribution, mean
from weft_bench.studies.curves import bounded_load

if TYPE_CHECKING:
    from weft_bench.gpu.play import Outcome

# Cells by `workload/load/system`.
Cells = Mapping[str, Mapping[str, float]]
OURS: Final = "ours"
BASELINES: Final = ("vllm", "vllm-opt", "mlfq")

COLUMNS: Final = (
    Column("programs", "programs"),
    Column("cut", "programs", "cut"),
    Column("errors", "programs", "errors"),
    Column("rate", "programs/s"),
    Column("seconds", "s"),
    Column("calls", "calls"),
    Column("output_tokens", "tokens"),
    Column("tokens_per_s", "tokens/s", "tokens/s"),
    Column("response_mean", "s", "mean, s"),
    Column("response_p50", "s"),
    Column("response_p95", "s", "p95, s"),
    Column("response_p99", "s", "p99, s"),
    Column("program_token_latency", "s/token", "s/token"),
    Column("prefix_hit_rate", "1", "hit rate"),
    Column("preemptions", "times", "preempted"),
    Column("displacements", "times"),
    Column("recomputed_tokens", "tokens"),
    Column("blocks_swapped_out", "blocks", "swapped out"),
    Column("blocks_swapped_in", "blocks"),
)
_COMPARED: Final = ("response_mean", "program_token_latency", "response_p95", "response_p99")


def summarise(outcome: Outcome) -> dict[str, float]:
    """Return the figures of one cell, by the names of COLUMNS.

    A program that was cut off counts with its time until then and with all its planned tokens, so
    its latency and token latency are lower bounds. A program with an error only counts as an error
    and in the engine's figures.
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
        **distribution("response", times),
        # Agentix 6.2: a program's response time over its tokens, mean over programs.
        "program_token_latency": mean([r.response_s / tokens for r, tokens in kept if tokens]),
        "prefix_hit_rate": engine.hit / engine.queried if engine.queried else 0.0,
        "preemptions": engine.preemptions,
        "displacements": outcome.play.engines.displacements,
        "recomputed_tokens": outcome.play.engines.recomputed_tokens,
        "blocks_swapped_out": outcome.play.engines.blocks_swapped_out,
        "blocks_swapped_in": outcome.play.engines.blocks_swapped_in,
    }


def rows(cells: Cells) -> report.Rows:
    """Return the cells by workload, load and system."""
    return {tuple(key.split("/")): values for key, values in sorted(cells.items())}


def ratios(cells: Cells) -> report.Rows:
    """Return Weft's ratio to each baseline, by workload, load and baseline.

    A figure that is 0 in the baseline has no ratio.
    """
    found = {}
    for workload, load in dict.fromkeys((key[0], key[1]) for key in rows(cells)):
        ours = cells.get(f"{workload}/{load}/{OURS}")
        for baseline in BASELINES:
            theirs = cells.get(f"{workload}/{load}/{baseline}")
            if ours is not None and theirs is not None:
                found[workload, load, baseline] = {
                    name: ours[name] / theirs[name] for name in _COMPARED if theirs[name]
                }
    return found


def figures(cells: Cells) -> list[Figure]:
    """Return all cells' figures as `workload/load/system/figure`, then Weft's ratios to each
    baseline.
    """
    over = {(w, load, f"ours_over_{b}"): values for (w, load, b), values in ratios(cells).items()}
    compared = [Column(name) for name in _COMPARED]
    return report.figures(rows(cells), COLUMNS) + report.figures(over, compared)


def bound(cells: Cells, scene: str, baseline: str) -> str:
    """Return how cut programs bound a ratio.

    ">": lower bound. "<": upper bound. "?": both systems had some. "": no bound.
    """
    ours, theirs = (bool(cells[f"{scene}/{name}"]["cut"]) for name in (OURS, baseline))
    return {(True, True): "?", (True, False): ">", (False, True): "<"}.get((ours, theirs), "")


def equal_latency(cells: Cells, workload: str, baseline: str) -> str:
    """Return Weft's rate over the baseline's at equal latency, by the figure of Agentix 6.2.

    The latency is that of the baseline's middle load. "-" if it is unknown.
    """
    theirs, ours = (
        sorted(
            (values["rate"], values["program_token_latency"])
            for key, values in rows(cells).items()
            if key[0] == workload and key[2] == system
        )
        for system in (baseline, OURS)
    )
    if not theirs or not ours:
        return "-"
    rate, latency = theirs[len(theirs) // 2]
    load, limit = bounded_load(latency, ours)
    return f"{limit}{load / rate:.2f}" if rate else "-"


def show(cells: Cells, device: str) -> None:
    """Print the cells, Weft's ratios to each baseline, and rates at equal latency.

    device: part of each title, so that CPU figures never look like GPU figures.
    """
    report.show(f"{device}: figures", ("workload", "load", "system"), rows(cells), COLUMNS)
    over = []
    for (workload, load, baseline), values in ratios(cells).items():
        sign = bound(cells, f"{workload}/{load}", baseline)
        shown = (f"{sign}{values[n]:.2f}" if n in values else "-" for n in _COMPARED)
        over.append((workload, load, baseline, *shown))
    if over:
        headings = ("workload", "load", "baseline", *_COMPARED)
        report.print_table(f"{device}: ours over", headings, over, 3)
        title = f"{device}: ours, programs a second over the baseline's at its latency"
        rates = [
            (workload, *(equal_latency(cells, workload, baseline) for baseline in BASELINES))
            for workload in dict.fromkeys(row[0] for row in over)
        ]
        report.print_table(title, ("workload", *BASELINES), rates)
    if any(values["cut"] for values in cells.values()):
        print("times of cells with cut programs are lower bounds; ratios of two of them say little")
