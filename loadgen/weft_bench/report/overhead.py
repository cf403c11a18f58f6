"""Figures of `weft bench overhead`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median as middle
from typing import Final

from weft_bench.report.rows import Column, Rows

DIRECT: Final = "direct"
_OURS: Final = "weft"
LABELS: Final = ("", "at once", "proxy")
COLUMNS: Final = (
    Column("rate", "requests/s", "requests/s", ",.0f"),
    Column("added_p50", "ms", "added p50, ms", ".2f"),
    Column("added_p99", "ms", "added p99, ms", ".2f"),
    Column("errors", "requests", "errors", ".0f"),
    Column("cpu", "us/request", "CPU, us", ".0f"),
    Column("weft_rate_ratio", "1", "weft's rate / its", ".2f"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One proxy at one load.

    cpu_us: CPU time of its processes, microseconds a request; 0 if the system does not report it.
    """

    per_second: float
    p50_ms: float
    p99_ms: float
    errors: int
    cpu_us: float = 0.0


# (proxy, streamed, concurrent calls)
Cells = Mapping[tuple[str, bool, int], Cell]


def median(samples: Sequence[Cell]) -> Cell:
    """Return the median of several rounds; errors are summed."""
    return Cell(
        middle(s.per_second for s in samples),
        middle(s.p50_ms for s in samples),
        middle(s.p99_ms for s in samples),
        sum(s.errors for s in samples),
        middle(s.cpu_us for s in samples),
    )


def rows(cells: Cells) -> Rows:
    """Return each proxy's latency above a direct call's, and Weft's rate over each peer's."""
    found = {}
    for (name, stream, width), cell in sorted(cells.items(), key=lambda x: (x[0][1], x[0][2])):
        direct = cells[DIRECT, stream, width]
        values = {
            "rate": cell.per_second,
            "added_p50": cell.p50_ms - direct.p50_ms,
            "added_p99": cell.p99_ms - direct.p99_ms,
            "errors": cell.errors,
            "cpu": cell.cpu_us,
        }
        if name not in (DIRECT, _OURS):
            values["weft_rate_ratio"] = cells[_OURS, stream, width].per_second / cell.per_second
        found["stream" if stream else "plain", str(width), name] = values
    return found
