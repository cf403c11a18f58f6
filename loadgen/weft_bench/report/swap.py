"""The table and the figures of `weft bench swap`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.table import Table

from weft_bench.report.figures import Figure

OURS: Final = "weft"
LIMIT: Final = "limit"

# (direction, blocks, way) to GB/s, 10^9 bytes.
Rates = Mapping[tuple[str, int, str], float]


def figures(rates: Rates) -> list[Figure]:
    """All numbers: `direction/blocks/way/rate`, and ours as a ratio to each other way's."""
    found = []
    for (direction, blocks, way), rate in rates.items():
        at = f"{direction}/{blocks}/{way}"
        found.append(Figure(f"{at}/rate", rate, "GB/s"))
        if way != OURS:
            found.append(
                Figure(f"{at}/weft_rate_ratio", rates[direction, blocks, OURS] / rate, "1")
            )
    return found


def ranges(rates: Rates) -> list[str]:
    """For each other way, from where to where our rate over its rate goes."""
    ratios: dict[str, list[float]] = {}
    for (direction, blocks, way), rate in rates.items():
        if way != OURS:
            ratios.setdefault(way, []).append(rates[direction, blocks, OURS] / rate)
    return [f"{OURS} over {way}: {min(r):.2f} to {max(r):.2f}" for way, r in ratios.items()]


def show(rates: Rates, title: str, block_bytes: int) -> None:
    """Print the table."""
    table = Table(title=title, title_justify="left")
    table.add_column("direction")
    for column in ("blocks", "MB"):
        table.add_column(column, justify="right")
    table.add_column("way")
    for column in ("GB/s", "weft's rate / its"):
        table.add_column(column, justify="right")
    before: tuple[str, int] | None = None
    for (direction, blocks, way), rate in rates.items():
        if before not in (None, (direction, blocks)):
            table.add_section()
        before = (direction, blocks)
        table.add_row(
            direction,
            f"{blocks:,}",
            f"{blocks * block_bytes / 1e6:,.0f}",
            way,
            f"{rate:.2f}",
            "" if way == OURS else f"{rates[direction, blocks, OURS] / rate:.2f}",
        )
    Console(width=max(100, Console().width)).print(table)
    for line in ranges(rates):
        print(line)
