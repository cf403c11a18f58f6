"""Tables of measured cells, from declarations of rows and columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft_bench.studies.cells import Measured, estimate

# A column: maps the cells of a row, and of all rows, to the row's value.
Shown = Callable[[Measured, Measured], object]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under columns. The first `labels` columns are text, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1


def mean(figure: str) -> Shown:
    """Return the mean of a figure over seeds."""
    return lambda one, group: one.estimate(figure)


def percent(figure: str) -> Shown:
    """Return the mean of a share over seeds, in percent."""
    return lambda one, group: estimate([100 * value for value in one.series(figure).values()])


def each(found: Measured, *settings: str) -> Iterator[Measured]:
    """Yield the cells of each measured combination of these settings."""
    if not settings:
        yield found
        return
    for level in found.levels(settings[0]):
        yield from each(found.where(**{settings[0]: level}), *settings[1:])


def table(
    found: Measured,
    title: str,
    labels: Sequence[str],
    columns: Mapping[str, Shown],
    where: Callable[[Measured], bool] = bool,
) -> Table:
    """Return a table with one row for each measured combination of the settings `labels`.

    where: selects rows.
    """
    rows = []
    for one in each(found, *labels):
        if where(one):
            names = [str(one.only(name)) for name in labels]
            rows.append((*names, *(str(shown(one, found)) for shown in columns.values())))
    return Table(title, (*labels, *columns), rows, labels=len(labels))
