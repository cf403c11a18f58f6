"""Tables and goals of `weft bench tenants`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft_bench.tenants.scenes import Column, Pinned

# Goals of this project.
SLOWDOWN_GOAL: Final = 2.5
HIT_RATE_GOAL: Final = 0.1
# Orders that are only shown for comparison.
WITHOUT_GOAL: Final = ("fcfs",)

Times = Mapping[str, Sequence[Column]]
Pins = Mapping[str, Sequence[Pinned]]


def slowdown(column: Column, alone: Column) -> float:
    """Return the honest tenant's mean call over its mean call alone."""
    return column.mean_s / alone.mean_s if alone.mean_s else float("nan")


def missed(times: Times, pins: Pins) -> list[str]:
    """Return the missed goals as text.

    A control without harm is a miss too, because its attack proves nothing.
    """
    found = []
    for order, (alone, *columns) in times.items():
        for column in (alone, *columns):
            found += _failed(f"{order}, {column.attack}", column.errors)
        for column in columns:
            name, ratio = f"{order}, {column.attack}", slowdown(column, alone)
            if not (column.served or column.in_flight):
                found.append(f"{name}: the attack did not take place: no call served, {column.why}")
            elif order in WITHOUT_GOAL:
                continue
            elif column.stopped and not column.control:
                found.append(f"{name}: {column.stopped} repeats reached the time limit")
            elif column.control == (ratio <= SLOWDOWN_GOAL and not column.stopped):
                found.append(f"{name}: {ratio:.2f} times the mean alone{_side(column.control)}")
    for order, pinned in pins.items():
        for one in pinned:
            name, lost = f"{order}, {one.attack}", one.before - one.during
            found += _failed(name, one.errors)
            if not (one.served and one.pinned_blocks):
                found.append(f"{name}: the attack did not take place: no pinned blocks")
            elif order not in WITHOUT_GOAL and one.control == (lost <= HIT_RATE_GOAL):
                found.append(f"{name}: the hit rate falls by {lost:.3f}{_side(one.control)}")
    return found


def _failed(name: str, errors: Sequence[str]) -> list[str]:
    return [f"{name}: {len(errors)} honest calls failed: {errors[0]}"] if errors else []


def _side(control: bool) -> str:
    return ", which is no harm, so the attack proves nothing" if control else ", above the goal"


def tables(times: Times, pins: Pins) -> list[dict[str, Any]]:
    """Return the tables of slowdowns and of hit rates."""
    slow, lost = [], []
    for order, columns in times.items():
        for column in columns:
            spread = f"{min(column.means):.3f} to {max(column.means):.3f}"
            ratio = "" if column is columns[0] else f"{slowdown(column, columns[0]):.2f}"
            did = [f"{count:,}" for count in (column.served, column.refused, column.tokens)]
            bound = ">= " if column.stopped else ""
            row = [order, column.attack, f"{bound}{column.mean_s:.3f}", spread]
            row += [f"{bound}{column.p95_s:.3f}", f"{bound}{ratio}" if ratio else ""]
            slow.append([*row, *(did if ratio else ["", "", ""])])
    for order, pinned in pins.items():
        for one in pinned:
            rates = [one.before, one.during, one.before - one.during]
            did = [f"{count:,}" for count in (one.served, one.refused, one.pinned_blocks)]
            lost.append([order, one.attack, *(f"{rate:.3f}" for rate in rates), *did])
    no_goal = f"no goal for {', '.join(WITHOUT_GOAL)}"
    return [
        {
            "title": "calls of the honest tenant, seconds, and the attacker's calls and tokens. "
            f"The goal is at most {SLOWDOWN_GOAL:g} times the mean alone, and more than that if "
            f"both share one key; {no_goal}",
            "labels": 2,
            "columns": [
                "order", "attack", "mean", "repeats", "p95", "over alone", "calls served",
                "refused", "tokens",
            ],
            "rows": slow,
        },
        {
            "title": "hit rate of the honest tenant while the attacker keeps pinning. The goal "
            f"is to lose at most {HIT_RATE_GOAL:g}, and more than that if both share one key; "
            f"{no_goal}",
            "labels": 2,
            "columns": [
                "order", "attack", "before", "during", "lost", "calls served", "refused",
                "pinned blocks",
            ],
            "rows": lost,
        },
    ]  # fmt: skip
