"""What a replay says: figures per policy, their table and their plot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from weft_bench.replay.player import Play
from weft_bench.report.figures import Figure
from weft_bench.stats import mean, percentile

Results = Mapping[str, Play]

_UNITS: Final = {
    "displacements": "times",
    "recomputed_tokens": "tokens",
    "blocks_swapped_out": "blocks",
    "blocks_swapped_in": "blocks",
}
# What a policy is chosen by; the other figures say why these are as they are.
_COMPARED: Final = (
    "program_token_latency", "response_mean", "response_p50", "response_p95", "response_p99",
    "waiting_mean",
)  # fmt: skip
# More columns of ratios would not fit beside the figures.
_RATIOS_BESIDE: Final = 2
_WIDEST: Final = 400
# Numbers over more bars than those of so many policies would overlap.
_LABELLED: Final = 4


def summarise(play: Play) -> list[Figure]:
    """The figures of one policy. Programs with an error count as errors and in nothing else but
    what the engines did, which is not told by program."""
    results = play.programs
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
        *(Figure(name, count, _UNITS[name]) for name, count in asdict(play.engines).items()),
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
    """A column a policy; with two of them, one more for the last one's ratio to the first."""
    shown = _table(title, results)
    beside = len(results) == _RATIOS_BESIDE
    if beside:
        first, last = results
        shown.add_column(f"{last} / {first}", justify="right")
    for row in zip(*(summarise(played) for played in results.values()), strict=True):
        cells = [
            f"{figure.value:.4g}" if figure.value % 1 else f"{figure.value:.0f}" for figure in row
        ]
        if beside:
            cells.append(_ratio(row[-1], row[0]))
        shown.add_row(row[0].name, row[0].unit, *cells)
    return shown


def ratios(results: Results) -> Table:
    """Each policy's times over the first one's."""
    first = next(iter(results))
    shown = _table(f"over {first}", results)
    for row in zip(*(summarise(played) for played in results.values()), strict=True):
        if row[0].name in _COMPARED:
            shown.add_row(row[0].name, "1", *(_ratio(figure, row[0]) for figure in row))
    return shown


def show(results: Results, title: str) -> None:
    """Print the table, and the ratios below it where there are too many to stand beside."""
    tables = [table(results, title)]
    if len(results) > _RATIOS_BESIDE:
        tables.append(ratios(results))
    # A file or a pipe gets what it needs; a narrow terminal wraps it.
    needed = max(Console(width=_WIDEST).measure(shown).maximum for shown in tables)
    console = Console(width=max(Console().width, needed))
    for shown in tables:
        console.print(shown)


def _table(title: str, results: Results) -> Table:
    shown = Table(title=title, title_justify="left")
    shown.add_column("figure")
    shown.add_column("unit")
    for policy in results:
        shown.add_column(policy, justify="right")
    return shown


def _ratio(figure: Figure, to: Figure) -> str:
    return f"{figure.value / to.value:.2f}" if to.value else "-"


def plot(results: Results, title: str, path: Path) -> None:
    """Distribution of program response time, and its mean and tail, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    picture, (left, right) = pyplot.subplots(
        1, 2, figsize=(10, 4), gridspec_kw={"width_ratios": [3, 2]}, layout="constrained"
    )
    colours = [
        *("#8a8f98", "#0b7a75", "#d97706", "#6d28d9"),
        *("#be123c", "#2563eb", "#65a30d", "#111827"),
    ]
    names = ("response_mean", "response_p50", "response_p95", "response_p99")
    width = 0.8 / len(results)
    for number, (policy, played) in enumerate(results.items()):
        colour = colours[number % len(colours)]
        times = sorted(r.response_s for r in played.programs if not r.errors)
        shares = [(i + 1) / len(times) for i in range(len(times))]
        left.step(times, shares, where="post", label=policy, color=colour, linewidth=2)
        values = {figure.name: figure.value for figure in summarise(played)}
        places = [i + (number - (len(results) - 1) / 2) * width for i in range(len(names))]
        bars = right.bar(places, [values[n] for n in names], width, label=policy, color=colour)
        if len(results) <= _LABELLED:
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
