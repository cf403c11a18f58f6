"""The table and the figures of `weft bench overhead`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median as middle
from typing import Final

from rich.console import Console
from rich.table import Table

from weft_bench.report.figures import Figure

DIRECT: Final = "direct"
_OURS: Final = "weft"


@dataclass(frozen=True, slots=True)
class Cell:
    """One proxy under one load. cpu_us: processor time of its processes, microseconds a request; 0
    where nobody tells."""

    per_second: float
    p50_ms: float
    p99_ms: float
    errors: int
    cpu_us: float = 0.0


# (proxy, streamed, calls at once)
Cells = Mapping[tuple[str, bool, int], Cell]


def median(samples: Sequence[Cell]) -> Cell:
    """The middle of several rounds; errors add up."""
    return Cell(
        middle(s.per_second for s in samples),
        middle(s.p50_ms for s in samples),
        middle(s.p99_ms for s in samples),
        sum(s.errors for s in samples),
        middle(s.cpu_us for s in samples),
    )


def figures(cells: Cells) -> list[Figure]:
    """All numbers: `kind/calls at once/proxy/what`, and ours as a ratio to each peer."""
    found = []
    for (name, stream, width), cell in cells.items():
        at = f"{'stream' if stream else 'plain'}/{width}/{name}"
        direct = cells[DIRECT, stream, width]
        found.append(Figure(f"{at}/rate", cell.per_second, "requests/s"))
        found.append(Figure(f"{at}/added_p50", cell.p50_ms - direct.p50_ms, "ms"))
        found.append(Figure(f"{at}/added_p99", cell.p99_ms - direct.p99_ms, "ms"))
        found.append(Figure(f"{at}/errors", cell.errors, "requests"))
        found.append(Figure(f"{at}/cpu", cell.cpu_us, "us/request"))
        if name not in (DIRECT, _OURS):
            ours = cells[_OURS, stream, width]
            ratio = ours.per_second / cell.per_second
            found.append(Figure(f"{at}/weft_rate_ratio", ratio, "1"))
    return found


def show(cells: Cells) -> None:
    """Print the table."""
    table = Table(title="A proxy in front of two mock engines", title_justify="left")
    for column in ("", "at once", "proxy"):
        table.add_column(column)
    for column in (
        "requests/s",
        "added p50, ms",
        "added p99, ms",
        "CPU, us",
        "errors",
        "weft's rate / its",
    ):
        table.add_column(column, justify="right")
    before: tuple[bool, int] | None = None
    for (name, stream, width), cell in sorted(cells.items(), key=lambda x: (x[0][1], x[0][2])):
        if before not in (None, (stream, width)):
            table.add_section()
        before = (stream, width)
        direct, ours = cells[DIRECT, stream, width], cells[_OURS, stream, width]
        peer = name not in (DIRECT, _OURS)
        table.add_row(
            "stream" if stream else "plain",
            str(width),
            name,
            f"{cell.per_second:,.0f}",
            "-" if name == DIRECT else f"{cell.p50_ms - direct.p50_ms:.2f}",
            "-" if name == DIRECT else f"{cell.p99_ms - direct.p99_ms:.2f}",
            f"{cell.cpu_us:.0f}" if cell.cpu_us else "-",
            str(cell.errors),
            f"{ours.per_second / cell.per_second:.2f}" if peer else "",
        )
    Console(width=max(100, Console().width)).print(table)
