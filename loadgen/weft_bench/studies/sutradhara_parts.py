"""Ablation of Sutradhara: each optimisation, the origin of cache hits, a comparison with pins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft_bench.studies.cells import Cell, Estimate, Measured, estimate
from weft_bench.studies.experiment import Experiment, Headline, Plot, Series, Table, more
from weft_bench.studies.orchestrated import (
    ALL,
    BASELINE,
    DISPATCH,
    FORGET,
    HEAVY,
    LIGHT,
    ORDER,
    PINNED,
    SHARES,
    SPLIT,
    TAGS,
    measure,
    played,
)
from weft_bench.studies.reuse import DEPTHS
from weft_bench.studies.show import Shown, each, mean, over, table
from weft_bench.studies.sutradhara_load import less, of, saved, saving

# Table 2, at 0.0075 requests a second: FTR and E2E in seconds, and the reduction of each against
# the baseline, percent.
_TABLE_2: Final[Mapping[str, tuple[str, str, str, str]]] = {
    BASELINE: ("37.45", "61.57", "-", "-"),
    SPLIT: ("35.17", "59.39", "6.1", "3.5"),
    DISPATCH: ("32.07", "56.03", "14.4", "9.0"),
    ALL: ("31.39", "54.93", "16.2", "10.8"),
    FORGET: ("-", "-", "-", "-"),
}
_RATES: Final = (LIGHT, HEAVY)
_TITLES: Final = {
    str(LIGHT): f"{LIGHT} requests a second, the paper's",
    str(HEAVY): f"{HEAVY} requests a second, at which they queue",
}


def _parts_cells(quick: bool) -> Sequence[Cell]:
    return played(quick, tuple(_TABLE_2), _RATES)


def _before(mode: str) -> str:
    """Return the configuration of the previous row."""
    modes = list(_TABLE_2)
    return modes[modes.index(mode) - 1]


def _beside(figure: str, previous: bool) -> Shown:
    """Return a column with the saving against the baseline or the previous row, percent."""

    def shown(one: Measured, group: Measured) -> object:
        mode = str(one.only("mode"))
        other = _before(mode) if previous else BASELINE
        return "-" if mode == BASELINE else saved(one, group.where(mode=other), figure)

    return shown


def _parts_tables(found: Measured) -> Sequence[Table]:
    columns: dict[str, Shown] = {
        "p50 FTR, s": mean("ftr_p50"),
        "p50 E2E, s": mean("e2e_p50"),
        "FTR less, %": _beside("ftr_p50", False),
        "E2E less, %": _beside("e2e_p50", False),
        "than the row above: FTR, %": _beside("ftr_p50", True),
        "E2E, %": _beside("e2e_p50", True),
        "service spent on prefills": mean("ahead_service"),
        "tools run, of FTR": mean("tools"),
    }
    theirs = ("published FTR, s", "published E2E, s", "published FTR less, %", "E2E less, %")
    published = {
        f"{name}{'' if name.startswith('published') else ' (published)'}": (
            lambda one, group, place=place: _TABLE_2[str(one.only("mode"))][place]
        )
        for place, name in enumerate(theirs)
    }
    return [
        table(
            at,
            _TITLES[rate],
            {"configuration": "mode"},
            columns | published if rate == str(LIGHT) else columns,
        )
        for rate, at in each(found, "rate")
    ]


def _parts_headline(found: Measured) -> Headline:
    scores = [saving(at, f"all at {rate}/s", ALL, BASELINE) for rate, at in each(found, "rate")]
    what = "reduction of the median FTR; more is better"
    return Headline(what, scores, f"16.2% at {LIGHT}/s")


_HITS: Final = {
    "others": "of other requests",
    "own": "of own earlier turns",
    "ahead": "prefilled ahead",
    "hit_rate": "hit rate",
}


def _kept(one: Measured, group: Measured) -> Estimate:
    """Return the hit rate without prefills, which were computed for the turn that finds them."""
    others, own = one.series("others"), one.series("own")
    return estimate([others[seed] + own[seed] for seed in others])


def _hit_tables(found: Measured) -> Sequence[Table]:
    tables = []
    for rate, at in each(found, "rate"):
        for depth in DEPTHS:
            columns = {heading: mean(f"{name}_{depth}") for name, heading in _HITS.items()}
            title = f"{_TITLES[rate]}; depth {depth}"
            tables.append(table(at, title, {"configuration": "mode"}, columns))
        columns = {heading: mean(name) for name, heading in _HITS.items()}
        columns |= {
            "without what was prefilled ahead": _kept,
            "hit rate over the baseline's": over("hit_rate", mode=BASELINE),
        }
        title = f"{_TITLES[rate]}; all depths (published: 0.218 to 0.446)"
        tables.append(table(at, title, {"configuration": "mode"}, columns))
    return tables


def _hit_plots(found: Measured) -> Sequence[Plot]:
    panels = [
        (
            f"{rate} requests/s",
            [
                Series(
                    mode,
                    list(range(len(DEPTHS))),
                    [one.estimate(f"hit_rate_{depth}") for depth in DEPTHS],
                )
                for mode, one in each(at, "mode")
            ],
        )
        for rate, at in each(found, "rate")
    ]
    return [Plot("depth of a turn (3: and deeper)", "hit rate", panels)] if panels else []


def _hit_headline(found: Measured) -> Headline:
    scores = [
        more(f"{rate}/s", at.where(mode=ALL).ratio("hit_rate", at.where(mode=BASELINE)))
        for rate, at in each(found, "rate")
    ]
    return Headline("the cache's hit rate over the baseline's; more is better", scores, "2.05")


_PIN_MODES: Final = (BASELINE, PINNED, ALL)


def _pin_tables(found: Measured) -> Sequence[Table]:
    columns = {
        f"p{share}": {
            **{f"{mode}, s": of(mode, f"ftr_p{share}") for mode in _PIN_MODES},
            f"{ALL} less than {PINNED}, %": less(ALL, PINNED, f"ftr_p{share}"),
            f"{PINNED} less than {BASELINE}, %": less(PINNED, BASELINE, f"ftr_p{share}"),
        }
        for share in SHARES
    }
    headings = next(iter(columns.values()))
    return [
        Table(
            f"{_TITLES[rate]}; published: 17% less median FTR",
            ("FTR", *headings),
            [
                (share, *(str(shown(at, at)) for shown in of_share.values()))
                for share, of_share in columns.items()
            ],
        )
        for rate, at in each(found, "rate")
    ]


def _pin_plots(found: Measured) -> Sequence[Plot]:
    panels = [
        (
            f"{rate} requests/s",
            [
                Series(
                    mode,
                    [one.estimate(f"ftr_p{share}").middle for share in SHARES],
                    [Estimate(*[share / 100] * 3) for share in SHARES],
                )
                for mode, one in each(at, "mode")
            ],
        )
        for rate, at in each(found, "rate")
    ]
    return [Plot("FTR, s", "share of requests", panels)] if panels else []


def _pin_headline(found: Measured) -> Headline:
    scores = [saving(at, f"{rate}/s", ALL, PINNED) for rate, at in each(found, "rate")]
    return Headline("reduction of median FTR against a pin of 6 s; more is better", scores, "17%")


TABLE_2: Final = Experiment(
    name="sutradhara-table-2",
    title="Gain of prompt splitting, streaming dispatch and cache management",
    source="Sutradhara, section 5.4.1, Table 2",
    published="at 0.0075 requests a second splitting saves 6.1% of the median FTR, dispatch "
    "another 8.3%, cache management another 1.8%; of E2E 3.5, 5.5 and 1.8%",
    cells=_parts_cells,
    measure=measure,
    tables=_parts_tables,
    notes=(
        "in the paper's sample (5.3) tools run for 0.129 of the FTR; here the share differs, and "
        "with it the time that overlap can hide",
    ),
    headline=_parts_headline,
    order=ORDER,
)
FIGURE_11: Final = Experiment(
    name="sutradhara-11",
    title="Cache hits of turns by their depth in a request",
    source="Sutradhara, section 5.4.3, Figure 11",
    published="the cache's hit rate grows from 21.8% to 44.6%, at depth 0 through prompts of other "
    "requests, at greater depth through prefills",
    cells=lambda quick: played(quick, (BASELINE, TAGS, DISPATCH, ALL), _RATES),
    measure=measure,
    tables=_hit_tables,
    plots=_hit_plots,
    headline=_hit_headline,
    order=ORDER,
)
FIGURE_12: Final = Experiment(
    name="sutradhara-12",
    title="Comparison with a cache that pins a request's blocks for 6 seconds",
    source="Sutradhara, section 6, Figure 12",
    published="17% less median FTR than Continuum with a time to live of 6 s",
    cells=lambda quick: played(quick, _PIN_MODES, _RATES),
    measure=measure,
    tables=_pin_tables,
    plots=_pin_plots,
    headline=_pin_headline,
    order=ORDER,
)
