"""Invented measurements for Sutradhara's experiments."""

from __future__ import annotations

from collections.abc import Mapping

from weft_bench.studies.cells import Cell, Measured, measured
from weft_bench.studies.experiment import Experiment
from weft_bench.studies.orchestrated import ALL, BASELINE, DISPATCH, FORGET, PINNED, SPLIT, TAGS

# Latency relative to the baseline.
GOOD: Mapping[str, float] = {
    BASELINE: 1.0,
    SPLIT: 0.94,
    DISPATCH: 0.86,
    ALL: 0.84,
    FORGET: 0.84,
    TAGS: 0.98,
    PINNED: 1.0,
}
BAD: Mapping[str, float] = {**dict.fromkeys(GOOD, 1.2), BASELINE: 1.0}


def _values(cell: Cell, factors: Mapping[str, float]) -> dict[str, float]:
    """Return latencies that grow with the square of the load."""
    factor = factors[cell.text("mode")]
    latency = (30.0 + cell.seed) * factor * (1 + (cell.number("rate") / 0.01) ** 2)
    kept = 0.2 / factor
    found = {"ahead_service": 0.1, "tools": 0.3, "e2e_p50": 2 * latency, "e2e_p90": 3 * latency}
    for share in (5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99):
        found[f"ftr_p{share}"] = latency * share / 50
    for place in ("", "_0", "_1", "_2", "_3+"):
        found |= {f"others{place}": kept / 2, f"own{place}": kept / 2, f"ahead{place}": 0.1}
        found[f"hit_rate{place}"] = kept + 0.1
    return found


def made(experiment: Experiment, factors: Mapping[str, float]) -> Measured:
    """Return an experiment's measurements for these latencies of its modes."""
    return measured((cell, _values(cell, factors)) for cell in experiment.cells(False))
