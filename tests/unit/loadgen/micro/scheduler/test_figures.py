"""The report of the scheduler bench."""

from __future__ import annotations

import pytest
from weft_bench.micro.scheduler.command import OURS, STOCK, Times, ratios

MEASURED = {
    ("steady", STOCK): Times([[1e-3, 2e-3, 9e-3], [2e-3]], [[1e-3], [1e-3]], 4, 9, 0.5),
    ("steady", OURS): Times([[2e-3, 3e-3, 9e-3], [2e-3]], [[2e-3], [2e-3]], 4, 9, 0.75),
}


def test_figures_are_over_all_rounds():
    found = MEASURED["steady", STOCK].values()
    assert found["schedule_p50"] == pytest.approx(2e-3)
    assert found["admitted"] == 0.5


def test_ratios_are_of_medians_over_all_rounds_and_in_each():
    found = ratios(MEASURED)[("steady",)]
    assert found["schedule_ratio"] == pytest.approx(1.25)
    assert (found["schedule_ratio_least"], found["schedule_ratio_greatest"]) == (1.0, 1.5)
    assert found["update_ratio"] == pytest.approx(2.0)
    assert found["schedule_mean_ratio"] == pytest.approx(16 / 14)
