"""Builders of tables and plots: what a study shows, as a declaration of rows and columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from weft_bench.studies.cells import Measured, Setting
from weft_bench.studies.experiment import Series, Table

# A column: from the cells of a row, and of the row's group, to what the row shows.
Shown = Callable[[Measured, Measured], object]


def mean(figure: str) -> Shown:
    """The mean of a figure over seeds."""
    return lambda one, group: one.estimate(figure)


def over(figure: str, **baseline: Setting) -> Shown:
    """The ratio of the row's figure to the figure of a baseline in the same group."""
    return lambda one, group: one.ratio(figure, group.where(**baseline))


def under(figure: str, **ours: Setting) -> Shown:
    """The ratio of the figure of one system of the group to the row's figure."""
    return lambda one, group: group.where(**ours).ratio(figure, one)


def each(found: Measured, *settings: str) -> Iterator[tuple[str, Measured]]:
    """Each combination of these settings that was measured, in words, and its cells."""
    if not settings:
        yield "", found
        return
    for level in found.levels(settings[0]):
        for name, one in each(found.where(**{settings[0]: level}), *settings[1:]):
            yield f"{level}, {name}" if name else str(level), one


def table(
    found: Measured,
    title: str,
    down: Mapping[str, str],
    columns: Mapping[str, Shown],
    where: Callable[[Measured], bool] = bool,
) -> Table:
    """One row for each combination of settings that was measured.

    down: heading to setting. The group of a row is the cells that agree with it on all of these but
    the last. where: rows to show.
    """
    *groups, last = down.values()
    rows = []
    for _, group in each(found, *groups):
        for _, one in each(group, last):
            if where(one):
                labels = (str(one.only(setting)) for setting in down.values())
                rows.append((*labels, *(str(shown(one, group)) for shown in columns.values())))
    return Table(title, (*down, *columns), rows, labels=len(down))


def across(
    found: Measured, title: str, down: str, setting: str, heading: str, figure: str
) -> Table:
    """One setting down, another across, and the mean of a figure in each place."""
    levels = found.levels(setting)
    rows = [
        (name, *(str(one.where(**{setting: level}).estimate(figure)) for level in levels))
        for name, one in each(found, down)
    ]
    return Table(title, (heading, *map(str, levels)), rows)


def lines(found: Measured, x: str, by: str, figure: str) -> Sequence[Series]:
    """One line of a plot for each level of `by`: the figure over the setting `x`."""
    levels = found.levels(x)
    places = [float(level) for level in levels]
    return [
        Series(name, places, [one.where(**{x: level}).estimate(figure) for level in levels])
        for name, one in each(found, by)
    ]
