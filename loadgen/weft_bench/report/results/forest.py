"""The forest plot: every ratio on fresh seeds."""

from __future__ import annotations

from pathlib import Path

from weft_bench.report.drawing import ForestRow, forest
from weft_bench.report.results.comparisons import Comparison
from weft_bench.report.results.material import Material
from weft_bench.studies.cells import Estimate


def rows(material: Material) -> list[ForestRow]:
    """Return the comparisons with an interval whose seeds were not used for tuning.

    A ratio for which more is better is inverted, so that all rows read alike. A bound has no row.
    """
    return [
        ForestRow(f"{one.kind}: {one.score.name}", _as_less(one), one.verdict, one.goal)
        for one in material.comparisons
        if one.fresh and one.counts and one.tested
    ]


def _as_less(one: Comparison) -> Estimate:
    ratio = one.score.ratio
    if one.score.less:
        return ratio
    return Estimate(1 / ratio.middle, 1 / ratio.high, 1 / ratio.low, p=ratio.p)


def draw(path: Path, material: Material) -> bool:
    """Draw the plot. Returns False if it has no rows. Raises ImportError without matplotlib."""
    found = rows(material)
    if found:
        forest(path, found, "Weft over its opponents, fresh seeds, 95% intervals")
    return bool(found)
