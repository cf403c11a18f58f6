"""The table and the figures of `weft bench workload --describe`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from weft_bench.report.figures import Figure

_UNITS = {"gap": "s", "tool mean": "s", "tool variance": "s^2", "prompt": "tokens"}
_UNITS |= {"new prompt": "tokens", "output": "tokens", "arrivals per s": "1/s"}
_UNITS = {"prompt before tools": "1", **_UNITS}


@dataclass(frozen=True, slots=True)
class Described:
    """One workload: where it is from, what was published of it, and what it is like here."""

    name: str
    source: str
    published: Mapping[str, float]
    found: Mapping[str, float]


def figures(rows: Sequence[Described]) -> list[Figure]:
    """All numbers: `workload/statistic`, and `workload/statistic/published`."""
    found = []
    for row in rows:
        for name, value in row.found.items():
            found.append(Figure(f"{row.name}/{name}", value, _unit(name)))
            if name in row.published:
                at = f"{row.name}/{name}/published"
                found.append(Figure(at, row.published[name], _unit(name)))
    return found


def show(rows: Sequence[Described]) -> None:
    """Print a table for each workload: every statistic, beside it what was published."""
    for row in rows:
        table = Table(title=f"{row.name} ({row.source})", title_justify="left")
        table.add_column("statistic")
        table.add_column("unit")
        table.add_column("published", justify="right")
        table.add_column("here", justify="right")
        for name, value in row.found.items():
            told = number(row.published[name]) if name in row.published else ""
            table.add_row(name, _unit(name), told, number(value))
        Console(width=max(100, Console().width)).print(table)


def markdown(rows: Sequence[Described]) -> str:
    """A table in Markdown with a row for each workload."""
    lines = ["| workload | source | published | here |", "|---|---|---|---|"]
    for row in rows:
        told = _list({name: value for name, value in row.published.items() if name in row.found})
        lines.append(f"| `{row.name}` | {row.source} | {told or 'nothing'} | {_list(row.found)} |")
    return "\n".join(lines)


def number(value: float) -> str:
    """A number in as many digits as it is worth."""
    if value == int(value):
        return f"{int(value):,}"
    if value < 0.1:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _list(values: Mapping[str, float]) -> str:
    """ "calls mean 2, max 7; output mean 3": names that begin alike are said once."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        head, _, tail = name.rpartition(" ")
        group = groups.setdefault(head or tail, [])
        group.append(f"{tail} {number(value)}" if head else number(value))
    return "; ".join(f"{head} {', '.join(group)}" for head, group in groups.items())


def _unit(name: str) -> str:
    return next((unit for head, unit in _UNITS.items() if name.startswith(head)), "1")
