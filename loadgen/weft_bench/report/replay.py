"""Figures of `weft bench replay`, and their plot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from weft_bench.drive.player import Play
from weft_bench.report import rows as report
from weft_bench.report.rows import Column
from weft_bench.stats import distribution, mean

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
