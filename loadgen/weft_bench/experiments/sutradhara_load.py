"""Sutradhara against load: its production trace, and the two open benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft_bench.experiments.cells import Cell, Estimate, Measured
from weft_bench.experiments.curves import Throughput, curves, throughput_ratio
from weft_bench.experiments.experiment import Experiment, Plot, Series, Table
from weft_bench.experiments.headline import Headline, more
from weft_bench.experiments.orchestrated import (
    ALL,
    BASELINE,
    PAPER_RATES,
    RATES,
    WIDE,
    measure,
    played,
)

_QUICK_RATES: Final = (0.0075, 0.015, 0.035)
# Figures and what they are called; where the paper says how much is saved at most at one load, and
# how much more load is borne at one latency.
_FIGURES: Final[Mapping[str, tuple[str, str, str]]] = {
    "ftr_p50": ("p50 FTR", "15", "77"),
    "ftr_p90": ("p90 FTR", "11", "45"),
    "e2e_p50": ("p50 E2E", "11", "-"),
    "e2e_p90": ("p90 E2E", "9", "-"),
}
# Figure 9 (c): workload and its rates to the paper's medians of baseline and all, and the gain.
_OPEN: Final[Mapping[str, Mapping[float, tuple[str, str, str]]]] = {
    "web_search": {
        0.5: ("20.37", "18.91", "7.2"),
        1.5: ("20.87", "18.79", "10.0"),
        2.0: ("21.59", "19.87", "8.0"),
    },
    "swe": {
        0.05: ("48.47", "42.10", "13.2"),
        0.1: ("51.95", "45.20", "13.0"),
        0.25: ("61.86", "56.77", "8.2"),
    },
}


def saved(ours: Measured, baseline: Measured, figure: str) -> Estimate:
    """By how much less than the baseline's a figure is, per cent; below 0: it is more."""
    ratio = ours.ratio(figure, baseline)
    return Estimate(*(100 * (1 - one) for one in (ratio.middle, ratio.high, ratio.low)))


def verdict(less: Estimate) -> str:
    """A saving in words that nobody can overlook."""
    if less.below(0):
        return f"{-less.middle:.1f}% more ({-less.high:.1f} to {-less.low:.1f}; worse)"
    shown = f"{less.middle:.1f}% less ({less.low:.1f} to {less.high:.1f}"
    return f"{shown})" if less.above(0) else f"{shown}; no difference shown)"


def more_load(found: Measured, figure: str) -> tuple[float, Throughput] | None:
    """At which of the rates the baseline's latency lets all that overlaps bear most more load, and
    how much; of the rates at which it can be told. None if at none."""
    ours, baseline = found.where(mode=ALL), found.where(mode=BASELINE)
    lines = curves(baseline, figure)
    best: tuple[float, Throughput] | None = None
    for place, rate in enumerate(map(float, baseline.levels("rate"))):
        level = {seed: line[place][1] for seed, line in lines.items()}
        ratio = throughput_ratio(ours, baseline, level, figure)
        known = ratio.bound in ("", "≥")
        if known and (best is None or ratio.ratio.middle > best[1].ratio.middle):
            best = rate, ratio
    return best


def _load_tables(found: Measured) -> Sequence[Table]:
    if not found:
        return []
    rows = []
    for rate in found.levels("rate"):
        at = found.where(rate=rate)
        for figure, (label, _, _) in _FIGURES.items():
            ours, baseline = at.where(mode=ALL), at.where(mode=BASELINE)
            less = saved(ours, baseline, figure)
            paper = "" if float(rate) in PAPER_RATES else "beyond the paper's"
            rows.append(
                (
                    str(rate),
                    label,
                    str(baseline.estimate(figure)),
                    str(ours.estimate(figure)),
                    str(less),
                    paper,
                )
            )
    loads = []
    for figure, (label, _, published) in _FIGURES.items():
        best = more_load(found, figure)
        where, shown = ("-", "not measured") if best is None else (str(best[0]), str(best[1]))
        loads.append((label, where, shown, published))
    return [
        Table(
            "seconds of requests, with everything on and without",
            ("requests/s", "figure", "baseline", "all", "less, %", "load"),
            rows,
            labels=2,
        ),
        Table(
            "load borne at the latency that the baseline has at one rate, over that of the "
            "baseline; at the rate where it is most",
            ("figure", "baseline's rate", "times the load", "published, up to % more"),
            loads,
        ),
    ]


def _load_findings(found: Measured) -> Sequence[str]:
    if not found:
        return []
    said = []
    for figure, (label, percent, _) in _FIGURES.items():
        savings = {
            rate: saved(
                found.where(mode=ALL, rate=rate), found.where(mode=BASELINE, rate=rate), figure
            )
            for rate in found.levels("rate")
        }
        most = max(savings, key=lambda rate: savings[rate].middle)
        least = min(savings, key=lambda rate: savings[rate].middle)
        said.append(
            f"{label}: at best {verdict(savings[most])}, at {most}/s (published: up to "
            f"{percent}%); at worst {verdict(savings[least])}, at {least}/s"
        )
    best = more_load(found, "ftr_p50")
    if best is None:
        said.append("load at equal p50 FTR: not measured, since one side is faster at every rate")
    else:
        said.append(
            f"load at equal p50 FTR: {best[1]} times the baseline's, at the latency that it has at "
            f"{best[0]}/s (published: up to 1.77)"
        )
    return said


def _load_plots(found: Measured) -> Sequence[Plot]:
    if not found:
        return []
    rates = [float(rate) for rate in found.levels("rate")]
    panels = [
        (
            label,
            [
                Series(
                    mode,
                    rates,
                    [found.where(mode=mode, rate=r).estimate(figure) for r in found.levels("rate")],
                )
                for mode in (BASELINE, ALL)
            ],
        )
        for figure, (label, _, _) in _FIGURES.items()
    ]
    return [Plot("requests/s", "seconds", panels, log_y=True)]


def _open_cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for workload, rates in _OPEN.items()
        for cell in played(quick, (BASELINE, ALL), list(rates)[:: 2 if quick else 1], workload)
    ]


def _open_rows(found: Measured) -> Sequence[tuple[str, float, Estimate, Estimate, Estimate]]:
    rows = []
    for workload in map(str, found.levels("workload")):
        at = found.where(workload=workload)
        for rate in at.levels("rate"):
            baseline, ours = at.where(mode=BASELINE, rate=rate), at.where(mode=ALL, rate=rate)
            rows.append(
                (
                    workload,
                    float(rate),
                    baseline.estimate("ftr_p50"),
                    ours.estimate("ftr_p50"),
                    saved(ours, baseline, "ftr_p50"),
                )
            )
    return rows


def _open_tables(found: Measured) -> Sequence[Table]:
    rows = []
    for workload, rate, baseline, ours, less in _open_rows(found):
        theirs = _OPEN[workload][rate]
        rows.append((workload, str(rate), str(baseline), str(ours), str(less), *theirs))
    columns = (
        "workload",
        "requests/s",
        "baseline, s",
        "all, s",
        "less, %",
        "published baseline, s",
        "all, s",
        "less, %",
    )
    return [Table("median FTR", columns, rows, labels=2)]


def _open_findings(found: Measured) -> Sequence[str]:
    return [
        f"{workload} at {rate}/s: p50 FTR {verdict(less)} (published: {_OPEN[workload][rate][2]}%)"
        for workload, rate, _, _, less in _open_rows(found)
    ]


def _load_headline(found: Measured) -> Headline:
    scores = []
    for rate in (one for one in found.levels("rate") if float(one) in PAPER_RATES):
        at = found.where(rate=rate)
        less = saved(at.where(mode=ALL), at.where(mode=BASELINE), "ftr_p50")
        scores.append(more(f"{rate}/s", less, 0.0, "%"))
    return Headline("median FTR, less than the baseline's; more is better", scores, "up to 15%")


def _open_headline(found: Measured) -> Headline:
    scores = [
        more(f"{workload} at {rate}/s", less, 0.0, "%")
        for workload, rate, _, _, less in _open_rows(found)
    ]
    what = "median FTR, less than the baseline's; more is better"
    return Headline(what, scores, "7.2 to 10.0%, swe 8.2 to 13.2%")


FIGURE_8: Final = Experiment(
    name="sutradhara-8",
    title="First token rendered and end-to-end latency against load",
    source="Sutradhara, section 5.2, Figure 8",
    published="up to 77% more load at the same p50 FTR and 45% at the same p90; up to 15% less p50 "
    "FTR, 11% less p90 FTR and 9% less p90 E2E at the same load, from 0.0075 to 0.015 requests a "
    "second (Qwen3-14B on one A100)",
    cells=lambda quick: played(quick, (BASELINE, ALL), _QUICK_RATES if quick else RATES, WIDE),
    measure=measure,
    tables=_load_tables,
    plots=_load_plots,
    findings=_load_findings,
    headline=_load_headline,
)
FIGURE_9C: Final = Experiment(
    name="sutradhara-9c",
    title="Median time to the final answer's first token on open benchmarks",
    source="Sutradhara, section 5.3, Figure 9 (c)",
    published="7.2 to 10.0% less on BFCL v4 web search, 8.2 to 13.2% less on SWE-Bench; contexts "
    "there only grow, so that most of what could be prefilled ahead is cached already",
    cells=_open_cells,
    measure=measure,
    tables=_open_tables,
    findings=_open_findings,
    headline=_open_headline,
)
