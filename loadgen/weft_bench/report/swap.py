"""Figures of `weft bench swap`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from weft_bench.report.rows import Column, Rows

OURS: Final = "weft"
LIMIT: Final = "limit"
LABELS: Final = ("direction", "blocks", "way")
COLUMNS: Final = (
    Column("rate", "GB/s", "GB/s", ".2f"),
    Column("weft_rate_ratio", "1", "weft's rate / its", ".2f"),
)
# (direction, blocks, way) to GB/s, 10^9 bytes.
Rates = Mapping[tuple[str, int, str], float]


def rows(rates: Rates) -> Rows:
    """Return the rate of each way, and the ratio of Weft's rate to it."""
    found = {}
    for (direction, blocks, way), rate in rates.items():
        values = {"rate": rate}
        if way != OURS:
            values["weft_rate_ratio"] = rates[direction, blocks, OURS] / rate
        found[direction, str(blocks), way] = values
    return found


def ranges(rates: Rates) -> list[str]:
    """Return the range of the ratio of Weft's rate to that of each other way."""
    ratios: dict[str, list[float]] = {}
    for (_, _, way), values in rows(rates).items():
        if way != OURS:
            ratios.setdefault(way, []).append(values["weft_rate_ratio"])
    return [f"{OURS} over {way}: {min(r):.2f} to {max(r):.2f}" for way, r in ratios.items()]
