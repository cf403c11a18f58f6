"""What a bench of overlap says: the rows of Sutradhara's Table 2, measured here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from weft_bench.overlap.player import ROWS, Result
from weft_bench.report.figures import Figure
from weft_bench.stats import mean, percentile

Rows = Mapping[str, Sequence[Sequence[Result]]]

# Table 2: less FTR and end-to-end latency than the baseline, at the median, percent.
PAPER: Final = dict(
    zip((row.name for row in ROWS), ((0, 0), (6.1, 3.5), (14.4, 9.0), (16.2, 10.8)), strict=True)
)
_WIDEST: Final = 400


@dataclass(frozen=True, slots=True)
class Summary:
    """One row over all seeds; errors are counted and in nothing else. Seconds, but for hit_rate:
    the share of the turns' prompt tokens that nobody computed for them, and tool_share: of FTR
    spent waiting for tools, at the median and at p90."""

    requests: int
    errors: int
    ftr_p50: float
    ftr_p90: float
    e2e_p50: float
    e2e_p90: float
    extended: int
    dispatched: int
    saved_prefill_s: float
    saved_dispatch_s: float
    hit_rate: float
    tool_share_p50: float
    tool_share_p90: float


def summarise(seeds: Sequence[Sequence[Result]]) -> Summary:
    """The figures of one row."""
    played = [result for results in seeds for result in results]
    good = [result for result in played if not result.errors]
    ftr = [result.ftr_s for result in good]
    e2e = [result.e2e_s for result in good]
    shares = [result.tool_s / result.ftr_s for result in good]
    prompts = sum(result.prompt_tokens for result in good)
    computed = sum(result.computed_tokens for result in good)
    return Summary(
        requests=len(good),
        errors=len(played) - len(good),
        ftr_p50=percentile(ftr, 0.5),
        ftr_p90=percentile(ftr, 0.9),
        e2e_p50=percentile(e2e, 0.5),
        e2e_p90=percentile(e2e, 0.9),
        extended=sum(result.extended for result in good),
        dispatched=sum(result.dispatched for result in good),
        saved_prefill_s=mean([result.saved_s.get("prefill", 0.0) for result in good]),
        saved_dispatch_s=mean([result.saved_s.get("dispatch", 0.0) for result in good]),
        hit_rate=1 - computed / prompts if prompts else 0.0,
        tool_share_p50=percentile(shares, 0.5),
        tool_share_p90=percentile(shares, 0.9),
    )


def less(value: float, baseline: float) -> float:
    """By how much a value is below the baseline's, percent."""
    return 100 * (1 - value / baseline) if baseline else 0.0


def paired(rows: Rows, name: str) -> tuple[float, float, float]:
    """By how much each request's FTR in a row is below its own in the baseline, percent: at the
    median, at p25 and at p75. Requests that failed in either are left out."""
    baseline = next(iter(rows.values()))
    found = [
        less(mine.ftr_s, theirs.ftr_s)
        for ours, others in zip(rows[name], baseline, strict=True)
        for mine, theirs in zip(ours, others, strict=True)
        if not mine.errors and not theirs.errors
    ]
    return percentile(found, 0.5), percentile(found, 0.25), percentile(found, 0.75)


def figures(rows: Rows) -> list[Figure]:
    """Every figure of every row, named `row/figure`."""
    units = {"requests": "requests", "errors": "requests", "extended": "turns"}
    units |= {"dispatched": "tools", "hit_rate": "1", "tool_share_p50": "1", "tool_share_p90": "1"}
    found = []
    baseline = summarise(next(iter(rows.values())))
    for name, seeds in rows.items():
        summary = summarise(seeds)
        for figure in Summary.__dataclass_fields__:
            value = getattr(summary, figure)
            found.append(Figure(f"{name}/{figure}", value, units.get(figure, "s")))
        for figure in ("ftr_p50", "ftr_p90", "e2e_p50", "e2e_p90"):
            value = less(getattr(summary, figure), getattr(baseline, figure))
            found.append(Figure(f"{name}/{figure}_less", value, "%"))
        found.append(Figure(f"{name}/ftr_less_paired", paired(rows, name)[0], "%"))
    return found


def table(rows: Rows) -> Table:
    """A line a row, as Table 2 has them."""
    shown = Table(title="FTR and end-to-end latency, seconds", title_justify="left")
    columns = [
        *("row", "FTR p50", "p90", "E2E p50", "p90", "less FTR", "less E2E", "paper"),
        *("less FTR, paired", "prefill saved", "dispatch saved", "extended", "dispatched"),
        *("cached", "errors"),
    ]
    for column in columns:
        shown.add_column(column, justify="left" if column == "row" else "right")
    baseline = summarise(next(iter(rows.values())))
    for name, seeds in rows.items():
        row = summarise(seeds)
        middle, low, high = paired(rows, name)
        first = seeds is next(iter(rows.values()))
        shown.add_row(
            name,
            *(f"{value:.3f}" for value in (row.ftr_p50, row.ftr_p90, row.e2e_p50, row.e2e_p90)),
            "-" if first else f"{less(row.ftr_p50, baseline.ftr_p50):.1f}%",
            "-" if first else f"{less(row.e2e_p50, baseline.e2e_p50):.1f}%",
            "-" if first else "{:.1f}, {:.1f}%".format(*PAPER[name]),
            "-" if first else f"{middle:.1f}% ({low:.0f} to {high:.0f})",
            f"{row.saved_prefill_s:.3f}",
            f"{row.saved_dispatch_s:.3f}",
            str(row.extended),
            str(row.dispatched),
            f"{row.hit_rate:.0%}",
            str(row.errors),
        )
    return shown


def show(rows: Rows) -> None:
    """Print the table, and how the baseline's requests came out beside the published shape."""
    shown = table(rows)
    # A file or a pipe gets what it needs; a narrow terminal wraps it.
    needed = Console(width=_WIDEST).measure(shown).maximum
    Console(width=max(Console().width, needed)).print(shown)
    baseline = summarise(next(iter(rows.values())))
    print(
        f"{baseline.requests} requests a row; saved: seconds a request, by the calls' receipts; "
        f"tools took {baseline.tool_share_p50:.0%} of the baseline's FTR at the median and "
        f"{baseline.tool_share_p90:.0%} at p90 (paper: 32% and 61%)"
    )
