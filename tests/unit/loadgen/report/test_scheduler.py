"""The report of the scheduler bench."""

from __future__ import annotations

import pytest
from weft_bench.report.scheduler import OURS, STOCK, Times, figures, ratio, show, spread

MEASURED = {
    ("steady", STOCK): Times([[1e-3, 2e-3, 9e-3], [2e-3]], [[1e-3], [1e-3]], 4, 9, 0.5),
    ("steady", OURS): Times([[2e-3, 3e-3, 9e-3], [2e-3]], [[2e-3], [2e-3]], 4, 9, 0.75),
}


def test_ratios_are_of_medians_over_all_rounds_and_in_each():
    assert ratio(MEASURED, "steady") == pytest.approx(2.5 / 2)
    assert spread(MEASURED, "steady") == pytest.approx((1.0, 1.5))


def test_figures_name_case_and_scheduler():
    found = {f.name: (f.value, f.unit) for f in figures(MEASURED)}
    assert found["steady/stock/schedule_p50"] == (pytest.approx(2e-3), "s")
    assert found["steady/weft/admitted"] == (0.75, "1")
    assert found["steady/schedule_ratio"] == (pytest.approx(1.25), "1")
    assert found["steady/update_ratio"] == (pytest.approx(2.0), "1")
    assert found["steady/schedule_mean_ratio"] == (pytest.approx(16 / 14), "1")


def test_the_table_shows_microseconds_and_the_ratio(capsys):
    show(MEASURED, "Scheduling")
    shown = capsys.readouterr().out
    assert "2,500" in shown
    assert "1.250 (rounds: 1.000 to 1.500)" in shown
