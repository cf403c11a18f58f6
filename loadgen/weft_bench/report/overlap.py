"""Figures of `weft bench overlap`: the rows of Sutradhara's Table 2, measured here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft_bench.overlap.player import ROWS, Result
from weft_bench.report import rows as report
from weft_bench.report.rows import Column
from weft_bench.stats import mean, percentile

# Row to results, seed by seed.
Rows = Mapping[str, Sequence[Sequence[Result]]]

# Table 2: reduction of the median FTR and end-to-end latency against the baseline, percent.
PAPER: Final = dict(
    zip((row.name for row in ROWS), ((0, 0), (6.1, 3.5), (14.4, 9.0), (16.2, 10.8)), strict=True)
)
_LATENCIES: Final = ("ftr_p50", "ftr_p90", "e2e_p50", "e2e_p90")
COLUMNS: Final = (
    Column("requests", "requests"),
    Column("errors", "requests", "errors"),
    *(Column(name, "s", name.replace("_", " ").upper(), ".3f") for name in _LATENCIES),
    Column("ftr_p50_less", "%", "less FTR, %", ".1f"),
    Column("e2e_p50_less", "%", "less E2E, %", ".1f"),
    Column("paper_ftr_less", "%", "paper: FTR", ".1f"),
    Column("paper_e2e_less", "%", "E2E", ".1f"),
    Column("ftr_p90_less", "%"),
    Column("e2e_p90_less", "%"),
    Column("ftr_less_paired", "%", "less FTR, paired, %", ".1f"),
    Column("ftr_less_paired_p25", "%", "p25", ".0f"),
    Column("ftr_less_paired_p75", "%", "p75", ".0f"),
    Column("saved_prefill_s", "s", "prefill saved, s", ".3f"),
    Column("saved_dispatch_s", "s", "dispatch saved, s", ".3f"),
    Column("extended", "turns", "extended"),
    Column("dispatched", "tools", "dispatched"),
    Column("hit_rate", "1", "cached", ".0%"),
    Column("tool_share_p50"),
    Column("tool_share_p90"),
)


def summarise(seeds: Sequence[Sequence[Result]]) -> dict[str, float]:
    """Return the figures of one row over all seeds; failed requests only count as errors.

    hit_rate: share of the turns' prompt tokens that was already cached. tool_share: share of FTR
    spent waiting for tools.
    """
    played = [result for results in seeds for result in results]
    good = [result for result in played if not result.errors]
    ftr = [result.ftr_s for result in good]
    e2e = [result.e2e_s for result in good]
    shares = [result.tool_s / result.ftr_s for result in good]
    prompts = sum(result.prompt_tokens for result in good)
    computed = sum(result.computed_tokens for result in good)
    return {
        "requests": len(good),
        "errors": len(played) - len(good),
        "ftr_p50": percentile(ftr, 0.5),
        "ftr_p90": percentile(ftr, 0.9),
        "e2e_p50": percentile(e2e, 0.5),
        "e2e_p90": percentile(e2e, 0.9),
        "extended": sum(result.extended for result in good),
        "dispatched": sum(result.dispatched for result in good),
        "saved_prefill_s": mean([result.saved_s.get("prefill", 0.0) for result in good]),
        "saved_dispatch_s": mean([result.saved_s.get("dispatch", 0.0) for result in good]),
        "hit_rate": 1 - computed / prompts if prompts else 0.0,
        "tool_share_p50": percentile(shares, 0.5),
        "tool_share_p90": percentile(shares, 0.9),
    }


def less(value: float, baseline: float) -> float:
    """Return the reduction of a value against the baseline's, percent."""
    return 100 * (1 - value / baseline) if baseline else 0.0


def paired(ours: Sequence[Sequence[Result]], theirs: Sequence[Sequence[Result]]) -> list[float]:
    """Return the reduction of each request's FTR against the same request in the baseline, percent.

    Requests that failed in either are left out.
    """
    return [
        less(mine.ftr_s, other.ftr_s)
        for results, others in zip(ours, theirs, strict=True)
        for mine, other in zip(results, others, strict=True)
        if not mine.errors and not other.errors
    ]


def rows(played: Rows) -> report.Rows:
    """Return the figures of every row, with reductions against the first row."""
    first, *_ = played.values()
    baseline = summarise(first)
    found = {}
    for name, seeds in played.items():
        values = summarise(seeds)
        for figure in _LATENCIES:
            values[f"{figure}_less"] = less(values[figure], baseline[figure])
        ratios = paired(seeds, first)
        for share, at in ((0.5, ""), (0.25, "_p25"), (0.75, "_p75")):
            values[f"ftr_less_paired{at}"] = percentile(ratios, share)
        values["paper_ftr_less"], values["paper_e2e_less"] = PAPER[name]
        found[(name,)] = values
    return found


def show(played: Rows) -> None:
    """Print the table, and the baseline's tool share with the published one."""
    found = rows(played)
    report.show("FTR and end-to-end latency", ("row",), found, COLUMNS)
    baseline = next(iter(found.values()))
    print(
        f"{baseline['requests']} requests a row; saved: seconds a request, by the calls' receipts; "
        f"tools took {baseline['tool_share_p50']:.0%} of the baseline's FTR at the median and "
        f"{baseline['tool_share_p90']:.0%} at p90 (paper: 32% and 61%)"
    )
