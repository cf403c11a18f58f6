"""The tables and the figures of `weft bench tenants`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from weft_bench.report.figures import Figure
from weft_bench.tenants.scenes import Column, Pinned

# What the project holds itself to.
SLOWDOWN_GOAL: Final = 2.5
HIT_RATE_GOAL: Final = 0.1

_WIDEST: Final = 400


def slowdowns(columns: Sequence[Column]) -> list[tuple[str, float]]:
    """Of each attack: the honest tenant's mean call over its mean call alone, the first column."""
    alone = columns[0].honest_s
    return [(c.attack, c.honest_s / alone if alone else float("nan")) for c in columns[1:]]


def figures(times: Mapping[str, Sequence[Column]], pins: Mapping[str, Pinned]) -> list[Figure]:
    """All numbers, by order and attack."""
    found = []
    for policy, columns in times.items():
        found += [Figure(f"{policy}/{c.attack}/honest_call", c.honest_s, "s") for c in columns]
        found += [
            Figure(f"{policy}/{attack}/slowdown", ratio, "1")
            for attack, ratio in slowdowns(columns)
        ]
    for policy, pinned in pins.items():
        found.append(Figure(f"{policy}/pins/hit_rate_before", pinned.before, "1"))
        found.append(Figure(f"{policy}/pins/hit_rate_after", pinned.after, "1"))
    return found


def show(times: Mapping[str, Sequence[Column]], pins: Mapping[str, Pinned]) -> None:
    """Print the two tables."""
    console = Console(width=_WIDEST if not Console().is_terminal else None)
    first = next(iter(times.values()), ())
    table = Table(title="Mean call of the honest tenant, seconds", title_justify="left")
    table.add_column("order")
    for column in first:
        table.add_column(column.attack, justify="right")
    table.add_column(f"worst over alone (goal: {SLOWDOWN_GOAL:g})", justify="right")
    for policy, columns in times.items():
        worst = max((ratio for _, ratio in slowdowns(columns)), default=float("nan"))
        cells = [f"{column.honest_s:.3f}" for column in columns]
        table.add_row(policy, *cells, f"{worst:.2f}")
    console.print(table)
    table = Table(title="Hit rate of the honest tenant", title_justify="left")
    table.add_column("order")
    for name in ("before", "after 12 pinning calls", f"lost (goal: {HIT_RATE_GOAL:g})"):
        table.add_column(name, justify="right")
    for policy, pinned in pins.items():
        lost = pinned.before - pinned.after
        table.add_row(policy, f"{pinned.before:.3f}", f"{pinned.after:.3f}", f"{lost:.3f}")
    console.print(table)
