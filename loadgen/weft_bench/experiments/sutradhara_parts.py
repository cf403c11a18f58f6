"""Sutradhara taken apart: each optimisation, what the cache finds, and a pin by time beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft_bench.experiments.cells import Cell, Estimate, Measured, estimate
from weft_bench.experiments.experiment import Experiment, Plot, Series, Table
from weft_bench.experiments.headline import Headline, more
from weft_bench.experiments.orchestrated import (
    ALL,
    BASELINE,
    DISPATCH,
    FORGET,
    HEAVY,
    LIGHT,
    PINNED,
    SHARES,
    SPLIT,
    TAGS,
    measure,
    played,
)
from weft_bench.experiments.reuse import DEPTHS
from weft_bench.experiments.sutradhara_load import saved, verdict

# Table 2, at 0.0075 requests a second: FTR and E2E in seconds, and how much less each is than the
# baseline's, per cent.
_TABLE_2: Final[Mapping[str, tuple[str, str, str, str]]] = {
    BASELINE: ("37.45", "61.57", "-", "-"),
    SPLIT: ("35.17", "59.39", "6.1", "3.5"),
    DISPATCH: ("32.07", "56.03", "14.4", "9.0"),
    ALL: ("31.39", "54.93", "16.2", "10.8"),
    FORGET: ("-", "-", "-", "-"),
}
_TITLES: Final = {
    LIGHT: f"{LIGHT} requests a second, the paper's",
    HEAVY: f"{HEAVY} requests a second, where they wait for each other",
}


def _parts_cells(quick: bool) -> Sequence[Cell]:
    return played(quick, tuple(_TABLE_2), (LIGHT, HEAVY))


def _parts_tables(found: Measured) -> Sequence[Table]:
    tables = []
    for rate in found.levels("rate"):
        at = found.where(rate=rate)
        baseline = at.where(mode=BASELINE)
        before = baseline
        rows = []
        for mode, theirs in _TABLE_2.items():
            one = at.where(mode=mode)
            first = mode == BASELINE
            row = [mode, str(one.estimate("ftr_p50")), str(one.estimate("e2e_p50"))]
            row += [
                "-" if first else str(saved(one, other, figure))
                for other in (baseline, before)
                for figure in ("ftr_p50", "e2e_p50")
            ]
            row.append(str(one.estimate("ahead_service")))
            if float(rate) == LIGHT:
                row += theirs
            rows.append(row)
            before = one
        columns = [
            "configuration",
            "p50 FTR, s",
            "p50 E2E, s",
            "FTR less, %",
            "E2E less, %",
            "than the row above: FTR, %",
            "E2E, %",
            "service spent on prefills",
        ]
        if float(rate) == LIGHT:
            columns += ["published FTR, s", "E2E, s", "FTR less, %", "E2E less, %"]
        tables.append(Table(_TITLES[float(rate)], columns, rows))
    return tables


def _parts_findings(found: Measured) -> Sequence[str]:
    said = []
    for rate in found.levels("rate"):
        at = found.where(rate=rate)
        tools = at.where(mode=BASELINE).estimate("tools")
        said.append(
            f"{rate}/s: tools run for {tools} of the baseline's "
            "FTR (0.129 of it in the paper's sample, 5.3): what can be hidden behind them differs"
        )
        before = BASELINE
        for mode in list(_TABLE_2)[1:]:
            alone = saved(at.where(mode=mode), at.where(mode=before), "ftr_p50")
            said.append(f"{mode} beside {before}, {rate}/s: p50 FTR {verdict(alone)}")
            before = mode
        whole = saved(at.where(mode=ALL), at.where(mode=BASELINE), "ftr_p50")
        published = " (published: 16.2%)" if float(rate) == LIGHT else ""
        said.append(f"all beside the baseline, {rate}/s: p50 FTR {verdict(whole)}{published}")
    return said


_HIT_MODES: Final = (BASELINE, TAGS, DISPATCH, ALL)
_HITS: Final = {
    "others": "of other requests",
    "own": "of own earlier turns",
    "ahead": "prefilled ahead",
    "hit_rate": "hit rate",
}


def _hit_tables(found: Measured) -> Sequence[Table]:
    tables = []
    for rate in found.levels("rate"):
        rows = []
        for depth in (*DEPTHS, ""):
            for mode in _HIT_MODES:
                one = found.where(rate=rate, mode=mode)
                place = f"_{depth}" if depth else ""
                figures = [one.estimate(f"{name}{place}") for name in _HITS]
                rows.append((depth or "all", mode, *map(str, figures)))
        columns = ("depth", "configuration", *_HITS.values())
        tables.append(Table(_TITLES[float(rate)], columns, rows, labels=2))
    return tables


def _hit_findings(found: Measured) -> Sequence[str]:
    said = []
    for rate in found.levels("rate"):
        at = found.where(rate=rate)
        lru, tags, every = (at.where(mode=mode) for mode in (BASELINE, TAGS, ALL))
        said.append(
            f"{rate}/s: hit rate {lru.estimate('hit_rate')} by age, {tags.estimate('hit_rate')} by "
            f"tags, {every.estimate('hit_rate')} with everything on (published: 0.218 to 0.446)"
        )
        kept = [_kept(one) for one in (lru, every)]
        word = "more" if kept[1].middle > kept[0].middle else "not more"
        said.append(
            f"{rate}/s: without what was computed ahead for the very turn that finds it, the rate "
            f"is {kept[0]} by age and {kept[1]} with everything on: {word} is kept"
        )
        order = tags.ratio("hit_rate", lru)
        if order.below(1):
            said.append(f"{rate}/s: tags alone find less than age, {order} of it (worse)")
    return said


def _kept(found: Measured) -> Estimate:
    """The hit rate without what was prefilled ahead."""
    others, own = found.series("others"), found.series("own")
    return estimate([others[seed] + own[seed] for seed in others])


def _hit_plots(found: Measured) -> Sequence[Plot]:
    if not found:
        return []
    x = list(range(len(DEPTHS)))
    panels = []
    for rate in found.levels("rate"):
        lines = [
            Series(
                mode,
                x,
                [found.where(rate=rate, mode=mode).estimate(f"hit_rate_{d}") for d in DEPTHS],
            )
            for mode in _HIT_MODES
        ]
        panels.append((f"{rate} requests/s", lines))
    return [Plot("depth of a turn (3: and deeper)", "hit rate", panels)]


_PIN_MODES: Final = (BASELINE, PINNED, ALL)


def _pin_tables(found: Measured) -> Sequence[Table]:
    tables = []
    for rate in found.levels("rate"):
        at = found.where(rate=rate)
        pinned, ours = at.where(mode=PINNED), at.where(mode=ALL)
        rows = [
            (
                f"p{share}",
                *(str(at.where(mode=mode).estimate(f"ftr_p{share}")) for mode in _PIN_MODES),
                str(saved(ours, pinned, f"ftr_p{share}")),
            )
            for share in SHARES
        ]
        columns = ("FTR", *(f"{mode}, s" for mode in _PIN_MODES), f"{ALL} less than {PINNED}, %")
        tables.append(Table(_TITLES[float(rate)], columns, rows))
    return tables


def _pin_findings(found: Measured) -> Sequence[str]:
    said = []
    for rate in found.levels("rate"):
        at = found.where(rate=rate)
        baseline, pinned, ours = (at.where(mode=mode) for mode in _PIN_MODES)
        said.append(
            f"{rate}/s: p50 FTR {verdict(saved(ours, pinned, 'ftr_p50'))} than with a pin of 6 s "
            f"(published: 17%), p99 {verdict(saved(ours, pinned, 'ftr_p99'))}; the pin itself "
            f"beside the baseline, p50: {verdict(saved(pinned, baseline, 'ftr_p50'))}"
        )
    return said


def _pin_plots(found: Measured) -> Sequence[Plot]:
    if not found:
        return []
    panels = []
    for rate in found.levels("rate"):
        at = found.where(rate=rate)
        lines = [
            Series(
                mode,
                [at.where(mode=mode).estimate(f"ftr_p{share}").middle for share in SHARES],
                [Estimate(share / 100, share / 100, share / 100) for share in SHARES],
            )
            for mode in _PIN_MODES
        ]
        panels.append((f"{rate} requests/s", lines))
    return [Plot("FTR, s", "share of requests", panels)]


def _parts_headline(found: Measured) -> Headline:
    scores = []
    for rate in found.levels("rate"):
        at = found.where(rate=rate)
        less = saved(at.where(mode=ALL), at.where(mode=BASELINE), "ftr_p50")
        scores.append(more(f"all at {rate}/s", less, 0.0, "%"))
    what = "median FTR, less than the baseline's; more is better"
    return Headline(what, scores, f"16.2% at {LIGHT}/s")


def _hit_headline(found: Measured) -> Headline:
    scores = []
    for rate in found.levels("rate"):
        at = found.where(rate=rate)
        ratio = at.where(mode=ALL).ratio("hit_rate", at.where(mode=BASELINE))
        scores.append(more(f"{rate}/s", ratio))
    return Headline("the cache's hit rate over the baseline's; more is better", scores, "2.05")


def _pin_headline(found: Measured) -> Headline:
    scores = []
    for rate in found.levels("rate"):
        at = found.where(rate=rate)
        less = saved(at.where(mode=ALL), at.where(mode=PINNED), "ftr_p50")
        scores.append(more(f"{rate}/s", less, 0.0, "%"))
    return Headline("median FTR, less than with a pin of 6 s; more is better", scores, "17%")


TABLE_2: Final = Experiment(
    name="sutradhara-table-2",
    title="What prompt splitting, streaming dispatch and cache management bring",
    source="Sutradhara, section 5.4.1, Table 2",
    published="at 0.0075 requests a second splitting takes 6.1% of the median FTR, dispatch "
    "another 8.3%, cache management another 1.8%; of E2E 3.5, 5.5 and 1.8%",
    cells=_parts_cells,
    measure=measure,
    tables=_parts_tables,
    findings=_parts_findings,
    headline=_parts_headline,
)
FIGURE_11: Final = Experiment(
    name="sutradhara-11",
    title="What turns find in the cache, by their depth in a request",
    source="Sutradhara, section 5.4.3, Figure 11",
    published="the cache's hit rate grows from 21.8% to 44.6%, at depth 0 by prompts of other "
    "requests, deeper by what was prefilled ahead",
    cells=lambda quick: played(quick, _HIT_MODES, (LIGHT, HEAVY)),
    measure=measure,
    tables=_hit_tables,
    plots=_hit_plots,
    findings=_hit_findings,
    headline=_hit_headline,
)
FIGURE_12: Final = Experiment(
    name="sutradhara-12",
    title="Beside a cache that pins a request's blocks for 6 seconds",
    source="Sutradhara, section 6, Figure 12",
    published="17% less median FTR than Continuum with a time to live of 6 s",
    cells=lambda quick: played(quick, _PIN_MODES, (LIGHT, HEAVY)),
    measure=measure,
    tables=_pin_tables,
    plots=_pin_plots,
    findings=_pin_findings,
    headline=_pin_headline,
)
