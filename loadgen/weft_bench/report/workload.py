"""Table and figures of `weft bench workload --describe`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from weft_bench.report import rows as report
from weft_bench.report.figures import Figure

# Units by the beginning of a statistic's name.
_UNITS: Final = {
    "prompt before tools": "1", "gap": "s", "tool mean": "s", "tool variance": "s^2",
    "prompt": "tokens", "new prompt": "tokens", "output": "tokens", "arrivals per s": "1/s",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Described:
    """One workload: its source, its published statistics, and those found here."""

    name: str
    source: str
    published: Mapping[str, float]
    found: Mapping[str, float]


def figures(rows: Sequence[Described]) -> list[Figure]:
    """Return all numbers as `workload/statistic` and `workload/statistic/published`."""
    found = []
    for row in rows:
        for name, value in row.found.items():
            found.append(Figure(f"{row.name}/{name}", value, _unit(name)))
            if name in row.published:
                at = f"{row.name}/{name}/published"
                found.append(Figure(at, row.published[name], _unit(name)))
    return found


def show(rows: Sequence[Described]) -> None:
    """Print a table for each workload with every statistic and its published value."""
    for row in rows:
        cells = []
        for name, value in row.found.items():
            published = number(row.published[name]) if name in row.published else ""
            cells.append((name, _unit(name), published, number(value)))
        columns = ("statistic", "unit", "published", "here")
        report.print_table(f"{row.name} ({row.source})", columns, cells, 2)


def markdown(rows: Sequence[Described]) -> str:
    """Return a table in Markdown with a row for each workload."""
    cells = []
    for row in rows:
        told = _list({name: value for name, value in row.published.items() if name in row.found})
        cells.append((f"`{row.name}`", row.source, told or "nothing", _list(row.found)))
    return report.markdown(("workload", "source", "published", "here"), cells, 4)


def number(value: float) -> str:
    """Return a number with its significant digits."""
    if value == int(value):
        return f"{int(value):,}"
    if value < 0.1:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _list(values: Mapping[str, float]) -> str:
    """Return text such as "calls mean 2, max 7; output mean 3", grouped by the names' beginning."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        head, _, tail = name.rpartition(" ")
        group = groups.setdefault(head or tail, [])
        group.append(f"{tail} {number(value)}" if head else number(value))
    return "; ".join(f"{head} {', '.join(group)}" for head, group in groups.items())


def _unit(name: str) -> str:
    return next((unit for head, unit in _UNITS.items() if name.startswith(head)), "1")
