"""Sutradhara's experiments on single parts: tables and headlines."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from support.sutradhara import BAD, GOOD, made
from weft_bench.studies.cells import Estimate
from weft_bench.studies.orchestrated import ALL, BASELINE, DISPATCH, PINNED, SPLIT, TAGS
from weft_bench.studies.reuse import DEPTHS
from weft_bench.studies.sutradhara_parts import FIGURE_11, FIGURE_12, TABLE_2


def test_table_2_has_the_papers_figures_at_the_papers_load() -> None:
    light, heavy = TABLE_2.tables(made(TABLE_2, GOOD))
    rows = {row[0]: row for row in light.rows}
    assert rows[BASELINE][3] == rows[BASELINE][5] == "-"
    assert rows[SPLIT][3] == rows[SPLIT][5] == "6.00"
    assert rows[DISPATCH][3] == "14.0"
    assert float(rows[DISPATCH][5]) == pytest.approx(100 * (1 - 0.86 / 0.94), abs=0.01)
    assert tuple(rows[ALL][-4:]) == ("31.39", "54.93", "16.2", "10.8")
    assert len(heavy.columns) == len(light.columns) - 4


def test_hit_rates_are_shown_by_depth_and_without_prefills() -> None:
    tables = FIGURE_11.tables(made(FIGURE_11, {**GOOD, TAGS: 1.5}))[:5]
    assert [table.title.rpartition("; ")[2] for table in tables] == [
        *(f"depth {depth}" for depth in DEPTHS),
        "all depths (published: 0.218 to 0.446)",
    ]
    place = tables[-1].columns.index("without what was prefilled ahead")
    kept = {row[0]: row[place] for row in tables[-1].rows}
    assert (kept[BASELINE], kept[ALL]) == ("0.200", "0.238")


def test_distribution_is_plotted_over_seconds() -> None:
    found = made(FIGURE_12, GOOD)
    (plot,) = FIGURE_12.plots(found)
    for _, lines in plot.panels:
        assert [line.label for line in lines] == [BASELINE, PINNED, ALL]
        assert all(list(line.x) == sorted(line.x) for line in lines)
        assert lines[0].y[-1] == Estimate(0.99, 0.99, 0.99)


@pytest.mark.parametrize(("factors", "outcome"), [(GOOD, "won"), (BAD, "lost")])
def test_headline_follows_from_the_figures(factors: Mapping[str, float], outcome: str) -> None:
    assert {score.outcome for score in TABLE_2.headline(made(TABLE_2, factors)).scores} == {outcome}
