"""Figures of `weft bench scheduler`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from weft_bench.report.rows import Column, Rows
from weft_bench.stats import mean, percentile

OURS: Final = "weft"
STOCK: Final = "stock"
LABELS: Final = ("case", "scheduler")
COLUMNS: Final = (
    Column("running", "1", "running", ".0f"),
    Column("waiting", "1", "waiting", ".0f"),
    Column("admitted", "1", "admitted", ".2f"),
    Column("schedule_p50", "s", "schedule p50, us", ",.0f", 1e6),
    Column("schedule_mean", "s", "mean, us", ",.0f", 1e6),
    Column("schedule_p99", "s", "p99, us", ",.0f", 1e6),
    Column("update_p50", "s", "update p50, us", ",.0f", 1e6),
)
RATIOS: Final = (
    Column("schedule_ratio", "1", "schedule p50", ".3f"),
    Column("schedule_ratio_least", "1", "least round", ".3f"),
    Column("schedule_ratio_greatest", "1", "greatest round", ".3f"),
    Column("schedule_mean_ratio", "1", "schedule mean", ".3f"),
    Column("update_ratio", "1", "update p50", ".3f"),
)


@dataclass(frozen=True, slots=True)
class Times:
    """One scheduler's times in one case.

    schedule_s, update_s: seconds of each step, round by round. running, waiting, admitted:
    sequences in a step, on average.
    """

    schedule_s: Sequence[Sequence[float]]
    update_s: Sequence[Sequence[float]]
    running: float
    waiting: float
    admitted: float

    def values(self) -> dict[str, float]:
        """Return the figures by the names of COLUMNS, over all rounds."""
        schedule = list(chain.from_iterable(self.schedule_s))
        return {
            "running": self.running,
            "waiting": self.waiting,
            "admitted": self.admitted,
            "schedule_p50": percentile(schedule, 0.5),
            "schedule_mean": mean(schedule),
            "schedule_p99": percentile(schedule, 0.99),
            "update_p50": percentile(list(chain.from_iterable(self.update_s)), 0.5),
        }


# (case, scheduler) to its times.
Measured = Mapping[tuple[str, str], Times]


def ratios(measured: Measured) -> Rows:
    """Return the ratios of Weft to stock vLLM by case, with the least and greatest of single
    rounds.
    """
    found = {}
    for case in dict.fromkeys(case for case, _ in measured):
        ours, stock = measured[case, OURS], measured[case, STOCK]
        one, other = ours.values(), stock.values()
        rounds = [
            percentile(a, 0.5) / percentile(b, 0.5)
            for a, b in zip(ours.schedule_s, stock.schedule_s, strict=True)
        ]
        found[(case,)] = {
            "schedule_ratio": one["schedule_p50"] / other["schedule_p50"],
            "schedule_ratio_least": min(rounds),
            "schedule_ratio_greatest": max(rounds),
            "schedule_mean_ratio": one["schedule_mean"] / other["schedule_mean"],
            "update_ratio": one["update_p50"] / other["update_p50"],
        }
    return found
