"""Sutradhara's experiments against load: tables and headlines."""

from __future__ import annotations

import pytest
from support.sutradhara import BAD, GOOD, made
from weft_bench.studies.experiment import Experiment
from weft_bench.studies.sutradhara_load import FIGURE_8, FIGURE_9C, more_load


def test_savings_and_loads_are_shown_with_published_figures() -> None:
    found = made(FIGURE_8, GOOD)
    *latencies, loads = FIGURE_8.tables(found)
    assert len(latencies) == 4
    assert {row[3].split()[0] for table in latencies for row in table.rows} == {"16.0"}
    assert [row[-1] for row in loads.rows] == ["77", "45", "-", "-"]
    rate, ratio = more_load(found, "ftr_p50") or (0.0, None)
    # Follows from 1 + x^2 = (1 + y^2) * 0.84. The lightest rate has the largest ratio.
    assert rate == 0.0075
    assert ratio is not None
    assert ratio.ratio.middle == pytest.approx(1.24, abs=0.03)


def test_open_benchmarks_are_shown_with_their_published_medians() -> None:
    (table,) = FIGURE_9C.tables(made(FIGURE_9C, GOOD))
    assert [row[:2] for row in table.rows] == [
        (workload, rate)
        for workload, rates in (
            ("web_search", ("0.5", "1.5", "2.0")),
            ("swe", ("0.05", "0.1", "0.25")),
        )
        for rate in rates
    ]
    assert table.rows[0][-3:] == ("20.37", "18.91", "7.2")


@pytest.mark.parametrize("experiment", [FIGURE_8, FIGURE_9C])
def test_headline_follows_from_the_figures(experiment: Experiment) -> None:
    for made_up, outcome in ((GOOD, "won"), (BAD, "lost")):
        scores = experiment.headline(made(experiment, made_up)).scores
        assert {score.outcome for score in scores} == {outcome}
