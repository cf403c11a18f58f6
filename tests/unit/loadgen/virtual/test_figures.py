"""The report of simulations."""

from __future__ import annotations

import pytest
from weft_bench.report.rows import figures
from weft_bench.stats import half_width
from weft_bench.virtual.command import COLUMNS, rows
from weft_bench.virtual.records import CallRecord, Simulation, program_record


def simulation(latency):
    call = CallRecord(
        "p", 0, "a", 1.0, 100, end_s=1.0 + latency, output_tokens=10, cached_tokens=25,
        waiting_s=0.5, service_s=0.25, preemptions=2, blocks_swapped_out=3,
    )  # fmt: skip
    return Simulation([call], [program_record("p", 1.0, [call])], 1.0 + latency)


SIMULATED = {("locality", "fcfs"): [simulation(4.0), simulation(8.0)]}


def test_figures_are_means_over_seeds_marked_as_simulated():
    found = {f.name: f.value for f in figures(rows(SIMULATED), COLUMNS)}
    assert all(name.startswith("simulated/locality/fcfs/") for name in found)
    at = "simulated/locality/fcfs"
    assert found[f"{at}/response_mean"] == 6.0
    assert found[f"{at}/program_token_latency"] == pytest.approx(0.6)
    assert found[f"{at}/prefix_hit_rate"] == 0.25
    assert found[f"{at}/wait_over_service_max"] == 2.0
    assert (found[f"{at}/preemptions"], found[f"{at}/blocks_swapped_out"]) == (2, 3)


def test_interval_uses_students_t():
    assert half_width([4.0]) == 0.0
    # 12.706 * s / sqrt(2), s = 2 sqrt(2).
    assert half_width([4.0, 8.0]) == pytest.approx(12.7062 * 2)
    assert half_width([0.0, 1.0] * 50) == pytest.approx(1.984 * 0.050252, rel=1e-3)
