"""What a replay says: figures per policy, their table and their plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadgen.player import ProgramResult
from loadgen.report.figures import Figure
from loadgen.stats import mean, percentile

Results = Mapping[str, Sequence[ProgramResult]]


def summarise(results: Sequence[ProgramResult]) -> list[Figure]:
    """The figures of one policy. Programs with an error count as errors and in nothing else."""
    good = [r for r in results if not r.errors]
    times = [r.response_s for r in good]
    prompt = sum(r.prompt_tokens for r in good)
    return [
        Figure("programs", len(good), "programs"),
        Figure("calls", sum(r.calls for r in good), "calls"),
        Figure("output_tokens", sum(r.output_tokens for r in good), "tokens"),
        # Agentix 6.2: a program's response time over its generated tokens, mean over programs.
        Figure(
            "program_token_latency",
            mean([r.response_s / r.output_tokens for r in good if r.output_tokens]),
            "s/token",
        ),
        Figure("response_mean", mean(times), "s"),
        Figure("response_p50", percentile(times, 0.50), "s"),
        Figure("response_p95", percentile(times, 0.95), "s"),
        Figure("response_p99", percentile(times, 0.99), "s"),
        Figure("waiting_mean", mean([r.waiting_s for r in good]), "s/program"),
        Figure("service_mean", mean([r.service_s for r in good]), "s/program"),
        Figure(
            "prefix_hit_rate", sum(r.cached_tokens for r in good) / prompt if prompt else 0.0, "1"
        ),
        Figure("preemptions", sum(r.preemptions for r in good), "times"),
        Figure("errors", len(results) - len(good), "programs"),
    ]


def figures(results: Results) -> list[Figure]:
    """All policies' figures, named `policy/figure`."""
    return [
        Figure(f"{policy}/{figure.name}", figure.value, figure.unit)
        for policy, played in results.items()
        for figure in summarise(played)
    ]


def table(results: Results, title: str) -> Table:
    """A column a policy, and the last one's ratio to the first."""
    shown = Table(title=title, title_justify="left")
    shown.add_column("figure")
    shown.add_column("unit")
    for policy in results:
        shown.add_column(policy, justify="right")
    if len(results) > 1:
        first, *_, last = results
        shown.add_column(f"{last} / {first}", justify="right")
    for row in zip(*(summarise(played) for played in results.values()), strict=True):
        cells = [
            f"{figure.value:.4g}" if figure.value % 1 else f"{figure.value:.0f}" for figure in row
        ]
        if len(row) > 1:
            cells.append(f"{row[-1].value / row[0].value:.2f}" if row[0].value else "-")
        shown.add_row(row[0].name, row[0].unit, *cells)
    return shown


def show(results: Results, title: str) -> None:
    """Print the table."""
    Console(width=max(100, Console().width)).print(table(results, title))


def plot(results: Results, title: str, path: Path) -> None:
    """Distribution of program response time, and its mean and tail, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    picture, (left, right) = pyplot.subplots(
        1, 2, figsize=(10, 4), gridspec_kw={"width_ratios": [3, 2]}, layout="constrained"
    )
    colours = ["#8a8f98", "#0b7a75", "#d97706", "#6d28d9"]
    names = ("response_mean", "response_p50", "response_p95", "response_p99")
    width = 0.8 / len(results)
    for number, (policy, played) in enumerate(results.items()):
        colour = colours[number % len(colours)]
        times = sorted(r.response_s for r in played if not r.errors)
        shares = [(i + 1) / len(times) for i in range(len(times))]
        left.step(times, shares, where="post", label=policy, color=colour, linewidth=2)
        values = {figure.name: figure.value for figure in summarise(played)}
        places = [i + (number - (len(results) - 1) / 2) * width for i in range(len(names))]
        bars = right.bar(places, [values[n] for n in names], width, label=policy, color=colour)
        right.bar_label(bars, fmt="%.0f", fontsize=8, padding=2)
    left.set_xlabel("program response time, s")
    left.set_ylabel("share of programs")
    left.set_ylim(0, 1)
    left.set_xlim(left=0)
    left.grid(alpha=0.25)
    left.legend(frameon=False, loc="lower right")
    right.set_xticks(range(len(names)), [n.removeprefix("response_") for n in names])
    right.set_ylabel("s")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    picture.suptitle(title, fontsize=11)
    picture.savefig(path, dpi=140)
    pyplot.close(picture)
