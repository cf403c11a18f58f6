"""The table and the figures of `weft bench scheduler`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from weft_bench.report.figures import Figure
from weft_bench.stats import mean, percentile

OURS: Final = "weft"
STOCK: Final = "stock"


@dataclass(frozen=True, slots=True)
class Times:
    """What one scheduler took in one case: seconds of each step, round by round, and how many
    sequences it ran and admitted in a step, on average."""

    schedule_s: Sequence[Sequence[float]]
    update_s: Sequence[Sequence[float]]
    running: float
    waiting: float
    admitted: float

    def schedule(self, share: float) -> float:
        """A percentile of `schedule()` over all rounds, seconds."""
        return percentile([s for round_ in self.schedule_s for s in round_], share)

    def update(self, share: float) -> float:
        """A percentile of `update_from_output()` over all rounds, seconds."""
        return percentile([s for round_ in self.update_s for s in round_], share)

    def mean(self) -> float:
        """Mean of `schedule()` over all rounds, seconds."""
        return mean([s for round_ in self.schedule_s for s in round_])


# (case, scheduler) to its times.
Measured = Mapping[tuple[str, str], Times]


def ratio(measured: Measured, case: str) -> float:
    """Median of our `schedule()` over the median of stock's."""
    return measured[case, OURS].schedule(0.5) / measured[case, STOCK].schedule(0.5)


def spread(measured: Measured, case: str) -> tuple[float, float]:
    """The least and the greatest ratio of medians that a single round gave."""
    pairs = zip(measured[case, OURS].schedule_s, measured[case, STOCK].schedule_s, strict=True)
    found = [percentile(ours, 0.5) / percentile(stock, 0.5) for ours, stock in pairs]
    return min(found), max(found)


def figures(measured: Measured) -> list[Figure]:
    """All numbers: `case/scheduler/...`, and `case/schedule_ratio`, ours over stock."""
    found = []
    for (case, name), times in measured.items():
        at = f"{case}/{name}"
        found += [
            Figure(f"{at}/schedule_p50", times.schedule(0.5), "s"),
            Figure(f"{at}/schedule_p99", times.schedule(0.99), "s"),
            Figure(f"{at}/schedule_mean", times.mean(), "s"),
            Figure(f"{at}/update_p50", times.update(0.5), "s"),
            Figure(f"{at}/running", times.running, "1"),
            Figure(f"{at}/waiting", times.waiting, "1"),
            Figure(f"{at}/admitted", times.admitted, "1"),
        ]
    for case in dict.fromkeys(case for case, _ in measured):
        low, high = spread(measured, case)
        ours, stock = measured[case, OURS], measured[case, STOCK]
        found += [
            Figure(f"{case}/schedule_ratio", ratio(measured, case), "1"),
            Figure(f"{case}/schedule_ratio_least", low, "1"),
            Figure(f"{case}/schedule_ratio_greatest", high, "1"),
            Figure(f"{case}/schedule_mean_ratio", ours.mean() / stock.mean(), "1"),
            Figure(f"{case}/update_ratio", ours.update(0.5) / stock.update(0.5), "1"),
        ]
    return found


def show(measured: Measured, title: str) -> None:
    """Print the table, times in microseconds."""
    table = Table(title=title, title_justify="left")
    table.add_column("case")
    table.add_column("scheduler")
    columns = ("running", "waiting", "admitted", "schedule p50", "mean", "p99", "update p50")
    for column in (*columns, "p50 ratio"):
        table.add_column(column, justify="right")
    for (case, name), times in measured.items():
        seconds = (times.schedule(0.5), times.mean(), times.schedule(0.99), times.update(0.5))
        table.add_row(
            case,
            name,
            f"{times.running:.0f}",
            f"{times.waiting:.0f}",
            f"{times.admitted:.2f}",
            *(f"{s * 1e6:,.0f}" for s in seconds),
            f"{ratio(measured, case):.3f}" if name == OURS else "",
        )
    Console(width=max(120, Console().width)).print(table)
    for case in dict.fromkeys(case for case, _ in measured):
        low, high = spread(measured, case)
        print(
            f"{case}: schedule() of {OURS} over {STOCK} {ratio(measured, case):.3f} "
            f"(rounds: {low:.3f} to {high:.3f})"
        )
