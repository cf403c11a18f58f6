"""Builders of tables and plots from declarations of rows and columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp, log

from weft_bench.studies.cells import Cell, Measured, Setting
from weft_bench.studies.experiment import Series, Table

# A column: maps the cells of a row, and of the row's group, to the row's value.
Shown = Callable[[Measured, Measured], object]


def mean(figure: str) -> Shown:
    """Return the mean of a figure over seeds."""
    return lambda one, group: one.estimate(figure)


def over(figure: str, **baseline: Setting) -> Shown:
    """Return the ratio of the row's figure to that of a baseline in the same group."""
    return lambda one, group: one.ratio(figure, group.where(**baseline))


def under(figure: str, **ours: Setting) -> Shown:
    """Return the ratio of the figure of one system in the group to the row's figure."""
    return lambda one, group: group.where(**ours).ratio(figure, one)


def pooled(found: Measured, figure: str) -> Measured:
    """Return one cell for each seed: the geometric mean of a figure over all settings."""
    logs: dict[int, list[float]] = {}
    for cell, values in found.values.items():
        logs.setdefault(cell.seed, []).append(log(values[figure]))
    means = {seed: exp(sum(ones) / len(ones)) for seed, ones in logs.items()}
    return Measured({Cell((), seed): {figure: value} for seed, value in means.items()})


def hit_rates(found: Measured, *systems: str) -> dict[str, float]:
    """Return the mean hit rates of these systems."""
    return {name: found.where(system=name).estimate("hit_rate").middle for name in systems}


def each(found: Measured, *settings: str) -> Iterator[tuple[str, Measured]]:
    """Yield each measured combination of these settings as text, with its cells."""
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
    """Return a table with one row for each measured combination of settings.

    down: heading to setting. The group of a row is the cells that have the same values for all of
    these settings except the last. where: selects rows.
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
    """Return a table of a figure's means with one setting as rows and another as columns."""
    levels = found.levels(setting)
    rows = [
        (name, *(str(one.where(**{setting: level}).estimate(figure)) for level in levels))
        for name, one in each(found, down)
    ]
    return Table(title, (heading, *map(str, levels)), rows)


def lines(found: Measured, x: str, by: str, figure: str) -> Sequence[Series]:
    """Return one line of a plot for each level of `by`: the figure over the setting `x`."""
    levels = found.levels(x)
    places = [float(level) for level in levels]
    return [
        Series(name, places, [one.where(**{x: level}).estimate(figure) for level in levels])
        for name, one in each(found, by)
    ]
