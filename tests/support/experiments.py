"""Cells of experiments with invented figures."""

from __future__ import annotations

from collections.abc import Callable

from weft_bench.studies.cells import Cell, Measured, measured
from weft_bench.studies.experiment import Experiment


def made_up(experiment: Experiment, latency: Callable[[Cell], float]) -> Measured:
    """Return all cells of an experiment, with figures derived from one latency."""

    def values(cell: Cell) -> dict[str, float]:
        one = latency(cell)
        names = ("token_latency", "token_latency_p95", "token_latency_p99", "latency", "makespan")
        more = ("waiting_per_token", "service_per_token", "swaps_per_token", "preemptions")
        rest = ("hit_rate", "migrations", "recomputed")
        return {**dict.fromkeys((*names, *more), one), **dict.fromkeys(rest, 0.5)}

    return measured((cell, values(cell)) for cell in experiment.cells(False))
