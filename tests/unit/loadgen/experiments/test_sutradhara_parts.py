"""Sutradhara taken apart: what is made of its cells."""

from __future__ import annotations

import pytest
from support.sutradhara import BAD, GOOD, made
from weft_bench.experiments.cells import Estimate
from weft_bench.experiments.experiment import Experiment
from weft_bench.experiments.orchestrated import ALL, BASELINE, DISPATCH, PINNED, SPLIT, TAGS
from weft_bench.experiments.sutradhara_parts import FIGURE_11, FIGURE_12, TABLE_2


def test_table_2_has_the_papers_rows_where_the_load_is_the_papers() -> None:
    light, heavy = TABLE_2.tables(made(TABLE_2, GOOD))
    rows = {row[0]: row for row in light.rows}
    assert rows[BASELINE][3] == rows[BASELINE][5] == "-"
    assert rows[SPLIT][3] == rows[SPLIT][5] == "6.00"
    assert rows[DISPATCH][3] == "14.0"
    assert float(rows[DISPATCH][5]) == pytest.approx(100 * (1 - 0.86 / 0.94), abs=0.01)
    assert tuple(rows[ALL][-4:]) == ("31.39", "54.93", "16.2", "10.8")
    assert len(heavy.columns) == len(light.columns) - 4


def test_hits_are_told_by_depth_and_without_what_was_computed_ahead() -> None:
    found = made(FIGURE_11, {**GOOD, TAGS: 1.5})
    table = FIGURE_11.tables(found)[0]
    assert [row[0] for row in table.rows[::4]] == ["0", "1", "2", "3+", "all"]
    said = FIGURE_11.findings(found)
    assert any("0.200 by age and 0.238 with everything on: more is kept" in one for one in said)
    assert any("tags alone find less" in one for one in said)
    worse = FIGURE_11.findings(made(FIGURE_11, BAD))
    assert any("not more is kept" in one for one in worse)


def test_a_distribution_is_drawn_over_seconds() -> None:
    found = made(FIGURE_12, GOOD)
    (plot,) = FIGURE_12.plots(found)
    for _, lines in plot.panels:
        assert [line.label for line in lines] == [BASELINE, PINNED, ALL]
        assert all(list(line.x) == sorted(line.x) for line in lines)
        assert lines[0].y[-1] == Estimate(0.99, 0.99, 0.99)


@pytest.mark.parametrize("experiment", [TABLE_2, FIGURE_12])
def test_what_is_worse_is_said(experiment: Experiment) -> None:
    assert any("worse" in said for said in experiment.findings(made(experiment, BAD)))
    assert not any("worse" in said for said in experiment.findings(made(experiment, GOOD)))
