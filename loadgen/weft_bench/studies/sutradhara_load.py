"""Sutradhara against load: its production trace and two open benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft_bench.studies.cells import Cell, Estimate, Measured
from weft_bench.studies.curves import Throughput, curves, throughput_ratio
from weft_bench.studies.experiment import Experiment, Headline, Plot, Score, Table
from weft_bench.studies.experiment import less as fewer
from weft_bench.studies.orchestrated import (
    ALL,
    BASELINE,
    ORDER,
    PAPER_RATES,
    RATES,
    WIDE,
    measure,
    played,
)
from weft_bench.studies.show import Shown, each, lines, table

# Figures with their labels and the paper's highest values, percent: saving at equal load, and
# additional load at equal latency.
_FIGURES: Final[Mapping[str, tuple[str, str, str]]] = {
    "ftr_p50": ("p50 FTR", "15", "77"),
    "ftr_p90": ("p90 FTR", "11", "45"),
    "e2e_p50": ("p50 E2E", "11", "-"),
    "e2e_p90": ("p90 E2E", "9", "-"),
}
# Figure 9 (c): workload and its rates to the paper's medians with the baseline and with all
# features, and the gain.
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
    """Return the saving of a figure against the baseline, percent; negative for an increase."""
    ratio = ours.ratio(figure, baseline)
    return Estimate(*(100 * (1 - one) for one in (ratio.middle, ratio.high, ratio.low)))


def saving(found: Measured, name: str, ours: str, other: str, figure: str = "ftr_p50") -> Score:
    """Return the score of our saving in a figure against another mode, shown in percent."""
    mine, theirs = found.where(mode=ours), found.where(mode=other)
    middle, _, ends = str(saved(mine, theirs, figure)).partition(" ")
    shown = middle if middle == "-" else f"{middle}% {ends}".strip()
    return fewer(name, mine.ratio(figure, theirs), shown)


def of(mode: str, figure: str) -> Shown:
    """Return a column with a mode's figure."""
    return lambda one, group: one.where(mode=mode).estimate(figure)


def less(ours: str, other: str, figure: str) -> Shown:
    """Return a column with the saving of one mode against another, percent."""
    return lambda one, group: saved(one.where(mode=ours), one.where(mode=other), figure)


def more_load(found: Measured, figure: str) -> tuple[float, Throughput] | None:
    """Return the baseline rate with the greatest gain in load at equal latency, and that gain.

    Only rates with a known gain count. Returns None without such a rate.
    """
    ours, baseline = found.where(mode=ALL), found.where(mode=BASELINE)
    known = curves(baseline, figure)
    best: tuple[float, Throughput] | None = None
    for place, rate in enumerate(map(float, baseline.levels("rate"))):
        level = {seed: line[place][1] for seed, line in known.items()}
        ratio = throughput_ratio(ours, baseline, level, figure)
        told = ratio.bound in ("", "≥")
        if told and (best is None or ratio.ratio.middle > best[1].ratio.middle):
            best = rate, ratio
    return best


def _load_tables(found: Measured) -> Sequence[Table]:
    tables = []
    for figure, (label, percent, _) in _FIGURES.items():
        columns = {
            "baseline, s": of(BASELINE, figure),
            "all, s": of(ALL, figure),
            "less, %": less(ALL, BASELINE, figure),
        }
        title = f"{label} with and without all features (published: up to {percent}% less, at "
        title += f"{PAPER_RATES[0]} to {PAPER_RATES[-1]} requests/s)"
        tables.append(table(found, title, {"requests/s": "rate"}, columns))
    loads = []
    for figure, (label, _, published) in _FIGURES.items() if found else ():
        best = more_load(found, figure)
        where, shown = ("-", "not measured") if best is None else (str(best[0]), str(best[1]))
        loads.append((label, where, shown, published))
    title = (
        "load at equal latency, over that of the baseline, at the baseline's rate with the "
        "greatest ratio"
    )
    headings = ("figure", "baseline's rate", "times the load", "published, up to % more")
    return [*tables, Table(title, headings, loads)]


def _load_plots(found: Measured) -> Sequence[Plot]:
    panels = [
        (label, lines(found, "rate", "mode", figure)) for figure, (label, _, _) in _FIGURES.items()
    ]
    return [Plot("requests/s", "seconds", panels, log_y=True)] if found else []


def _load_headline(found: Measured) -> Headline:
    scores = [
        saving(at, f"{rate}/s", ALL, BASELINE)
        for rate, at in each(found, "rate")
        if float(rate) in PAPER_RATES
    ]
    return Headline("reduction of the median FTR; more is better", scores, "up to 15%")


def _open_cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for workload, rates in _OPEN.items()
        for cell in played(quick, (BASELINE, ALL), list(rates)[:: 2 if quick else 1], workload)
    ]


def _published(place: int) -> Shown:
    return lambda one, group: _OPEN[str(one.only("workload"))][float(one.only("rate"))][place]


def _open_tables(found: Measured) -> Sequence[Table]:
    columns = {
        "baseline, s": of(BASELINE, "ftr_p50"),
        "all, s": of(ALL, "ftr_p50"),
        "less, %": less(ALL, BASELINE, "ftr_p50"),
        "published baseline, s": _published(0),
        "published all, s": _published(1),
        "published less, %": _published(2),
    }
    return [
        table(found, "median FTR", {"workload": "workload", "requests/s": "rate"}, columns),
    ]


def _open_headline(found: Measured) -> Headline:
    scores = [
        saving(at, f"{at.only('workload')} at {at.only('rate')}/s", ALL, BASELINE)
        for _, at in each(found, "workload", "rate")
    ]
    what = "reduction of the median FTR; more is better"
    return Headline(what, scores, "7.2 to 10.0%, swe 8.2 to 13.2%")


FIGURE_8: Final = Experiment(
    name="sutradhara-8",
    title="First token rendered and end-to-end latency against load",
    source="Sutradhara, section 5.2, Figure 8",
    published="up to 77% more load at the same p50 FTR and 45% at the same p90; up to 15% less p50 "
    "FTR, 11% less p90 FTR and 9% less p90 E2E at the same load, from 0.0075 to 0.015 requests a "
    "second (Qwen3-14B on one A100)",
    cells=lambda quick: played(
        quick, (BASELINE, ALL), (0.0075, 0.015, 0.035) if quick else RATES, WIDE
    ),
    measure=measure,
    tables=_load_tables,
    plots=_load_plots,
    headline=_load_headline,
    order=ORDER,
)
FIGURE_9C: Final = Experiment(
    name="sutradhara-9c",
    title="Median time to the final answer's first token on open benchmarks",
    source="Sutradhara, section 5.3, Figure 9 (c)",
    published="7.2 to 10.0% less on BFCL v4 web search, 8.2 to 13.2% less on SWE-Bench; contexts "
    "there only grow, so most of a possible prefill is already cached",
    cells=_open_cells,
    measure=measure,
    tables=_open_tables,
    headline=_open_headline,
    order=ORDER,
)
