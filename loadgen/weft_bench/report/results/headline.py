"""Weft beside the best other proxy on emulated engines, and the goals."""

from __future__ import annotations

from collections import Counter
from math import isnan
from typing import Final

from weft_bench.report.results import fronts
from weft_bench.report.results.comparisons import Comparison
from weft_bench.report.results.material import Material, seeds_as_text
from weft_bench.report.rows import markdown as table

# A percentile of fewer programs is nearly the slowest one.
_FOR_P99: Final = 100


def section(material: Material) -> str:
    """Return Weft beside the best other proxy on emulated engines."""
    found = material.of_groups("emulated")
    if not found:
        return "Not measured yet."
    rows = [
        (
            group.name,
            group.engines,
            str(group.programs),
            seeds_as_text(group.seeds),
            group.best("mean"),
            f"`{group.ours}`",
            *(_beside_goal(one) for one in judged),
        )
        for group, judged in found
    ]
    figures = (f"{label}, goal {fronts.GOALS[name]:.2f}" for name, label in fronts.LABELS.items())
    columns = ("workload", "engines", "programs", "seeds", "best peer (seeds)", "Weft", *figures)
    parts = [table(columns, rows, 6), _goals(material)]
    if any(group.programs < _FOR_P99 for group, _ in found):
        parts.append(
            f"With fewer than {_FOR_P99} programs in a play, P99 is nearly the slowest one."
        )
    return "\n\n".join(parts)


def _beside_goal(one: Comparison) -> str:
    return f"{one.score.shown}, {_goal(one)}"


def _goal(one: Comparison) -> str:
    """Return whether the goal is met: by the whole interval, by the mean only, or not."""
    ratio, goal = one.score.ratio, one.goal
    if goal is None or isnan(ratio.middle):
        return "-"
    if ratio.middle > goal:
        return "missed"
    if isnan(ratio.p):
        return "one seed"
    return "met" if ratio.high <= goal else "met by the mean, not by the interval"


def _goals(material: Material) -> str:
    by = Counter(
        (one.score.name.rpartition(", ")[2], _goal(one))
        for one in material.comparisons
        if one.goal is not None
    )
    lines = []
    for name, label in fronts.LABELS.items():
        found = {goal: count for (of, goal), count in by.items() if of == label}
        shown = ", ".join(f"{count} {goal}" for goal, count in sorted(found.items()))
        lines.append(f"- **{label}, goal {fronts.GOALS[name]:.2f}:** {shown}")
    return "\n".join(lines)
