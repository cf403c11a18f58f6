"""Drawings of experiments: lines, heat maps and a forest plot. Raise ImportError without
matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, isnan, log2
from pathlib import Path
from typing import Any, Final

from weft_bench.report import plots
from weft_bench.studies.cells import Estimate
from weft_bench.studies.experiment import Drawing, HeatMap, Plot

# Markers differ by shape, so that lines are distinct without color.
_MARKS: Final = "osD^vPX*"
_WIDTH: Final = 4.2
_HEIGHT: Final = 3.2
# Heat maps show ratios from 1 over this to this in different colors.
_WIDEST: Final = 2.0
_TICKS: Final = (0.5, 0.7, 1.0, 1.4, 2.0)
# Color and filling of a mark by verdict.
_LOOKS: Final = {
    "better": ("#1f6fb4", "#1f6fb4"),
    "worse": ("#c0392b", "#c0392b"),
    "no difference shown": ("#555555", "white"),
}


def files(drawn: Sequence[Drawing]) -> list[tuple[str, list[Drawing]]]:
    """Return the drawings of each file, with the end of its name."""
    return [(end, list(group)) for end, group in groupby(drawn, key=lambda one: one.file)]


def draw(path: Path, drawn: Sequence[Drawing], title: str) -> None:
    """Draw into one file, one drawing below the other, with at most three panels in a row."""
    columns = max(_columns(len(one.panels)) for one in drawn)
    heights = [ceil(len(one.panels) / columns) for one in drawn]
    picture, axes = plots.figure(
        sum(heights), columns, (_WIDTH * columns + 1.2, _HEIGHT * sum(heights))
    )
    rest = list(axes)
    looks = _line_looks(drawn)
    for one, height in zip(drawn, heights, strict=True):
        rows, rest = rest[:height], rest[height:]
        places = [axis for row in rows for axis in row]
        for axis in places[len(one.panels) :]:
            axis.axis("off")
        if isinstance(one, HeatMap):
            _heat(picture, places, one)
        else:
            _lines(places, one, looks)
    if looks:
        handles = {
            label: handle
            for axis in picture.axes
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        picture.legend(
            [handles[label] for label in looks], list(looks), fontsize="small", ncol=4,
            loc="outside lower center",
        )  # fmt: skip
    plots.save(picture, path, title)


def _line_looks(drawn: Sequence[Drawing]) -> dict[str, tuple[str, str]]:
    """Return the color and the mark of each line by its label, the same in all panels."""
    labels = dict.fromkeys(
        line.label
        for one in drawn
        if isinstance(one, Plot)
        for _, lines in one.panels
        for line in lines
    )
    return {
        label: (f"C{place % 10}", _MARKS[place % len(_MARKS)]) for place, label in enumerate(labels)
    }


def _columns(panels: int) -> int:
    return 2 if panels == 4 else min(panels, 3)


def _lines(places: Sequence[Any], plot: Plot, looks: Mapping[str, tuple[str, str]]) -> None:
    for axis, (name, lines) in zip(places, plot.panels, strict=False):
        for line in lines:
            color, mark = looks[line.label]
            middles = [one.middle for one in line.y]
            # matplotlib expects the distances of the ends from the middle.
            ends = [
                [one.middle - one.ends()[0] for one in line.y],
                [one.ends()[1] - one.middle for one in line.y],
            ]
            bars = ends if plot.bars else None
            axis.errorbar(
                line.x, middles, bars, label=line.label, color=color, marker=mark, capsize=2
            )
        axis.set(title=name, xlabel=plot.x, ylabel=plot.y)
        if plot.log_y:
            axis.set_yscale("log")
        elif not plot.bars:
            # Without intervals, only an axis from 0 shows how large a difference is.
            axis.set_ylim(0, 1.1 * max(one.middle for line in lines for one in line.y))


def _heat(picture: Any, places: Sequence[Any], heat: HeatMap) -> None:
    from matplotlib.colors import Normalize

    limit = log2(_WIDEST)
    mesh = None
    for axis, (name, ratios) in zip(places, heat.panels, strict=False):
        xs, ys = (sorted({place[at] for place in ratios}) for at in (0, 1))
        values = [[_shade(ratios.get((x, y))) for x in xs] for y in ys]
        mesh = axis.pcolormesh(
            values, cmap="RdBu_r", norm=Normalize(-limit, limit), edgecolors="white", linewidth=2
        )
        for (x, y), (ratio, note) in ratios.items():
            sure = ratio.above(1) or ratio.below(1)
            axis.text(
                xs.index(x) + 0.5,
                ys.index(y) + 0.5,
                f"{ratio.middle:.2f}\n{ratio.low:.2f} to {ratio.high:.2f}\n{note}",
                ha="center",
                va="center",
                fontsize="small",
                weight="bold" if sure else "normal",
                color="white" if abs(_shade((ratio, ""))) > 0.7 * limit else "black",
            )
        axis.grid(visible=False)
        axis.set_xticks([place + 0.5 for place in range(len(xs))], [f"{x:g}" for x in xs])
        axis.set_yticks([place + 0.5 for place in range(len(ys))], [f"{y:g}" for y in ys])
        axis.set(title=name, xlabel=heat.x, ylabel=heat.y)
    if mesh is not None:
        bar = picture.colorbar(mesh, ax=list(places), extend="both")
        bar.set_ticks([log2(tick) for tick in _TICKS], labels=[f"{tick:g}" for tick in _TICKS])
        bar.set_label(f"{heat.shown}\n(less is better)", fontsize="small")


def _shade(ratio: tuple[Estimate, str] | None) -> float:
    """Return the logarithm of a ratio; nan for an unknown one, which stays blank."""
    return float("nan") if ratio is None or isnan(ratio[0].middle) else log2(ratio[0].middle)


@dataclass(frozen=True, slots=True)
class ForestRow:
    """One comparison of a forest plot. goal: the ratio to reach, or None."""

    label: str
    ratio: Estimate
    verdict: str
    goal: float | None = None


def forest(path: Path, rows: Sequence[ForestRow], title: str) -> None:
    """Draw ratios with their 95% intervals, one below the other. Less than 1 is better."""
    picture, axes = plots.figure(1, 1, (9.5, 1.6 + 0.24 * len(rows)))
    axis = axes[0][0]
    axis.axvline(1.0, color="black", linewidth=1)
    for place, row in enumerate(rows):
        edge, face = _LOOKS[row.verdict]
        ratio = row.ratio
        axis.plot([ratio.low, ratio.high], [place, place], color=edge, linewidth=1.5)
        axis.plot(ratio.middle, place, marker="o", color=edge, markerfacecolor=face)
        if row.goal is not None:
            axis.plot(
                row.goal, place, marker="|", color="#2e7d32", markersize=12, markeredgewidth=2
            )
    axis.set_yticks(range(len(rows)), [row.label for row in rows], fontsize="small")
    beside = axis.secondary_yaxis("right")
    beside.set_yticks(range(len(rows)), [str(row.ratio) for row in rows], fontsize="small")
    beside.tick_params(length=0)
    axis.set_ylim(len(rows) - 0.3, -0.7)
    axis.set_xscale("log")
    ticks = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0)
    low, high = axis.get_xlim()
    axis.set_xticks([one for one in ticks if low <= one <= high], minor=False)
    axis.set_xticks([], minor=True)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("Weft's figure over the opponent's, ratio (less is better)")
    looks = [
        axis.plot([], [], marker="o", color=edge, markerfacecolor=face, label=verdict)[0]
        for verdict, (edge, face) in _LOOKS.items()
    ]
    if any(row.goal is not None for row in rows):
        goal = axis.plot([], [], marker="|", color="#2e7d32", linestyle="", label="goal")
        looks += goal
    picture.legend(handles=looks, fontsize="small", loc="outside lower center", ncol=4)
    plots.save(picture, path, title)
