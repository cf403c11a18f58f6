"""Rows of figures: one declaration of columns for the terminal and for the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from weft_bench.report.figures import Figure

# Labels of a row, a tuple of text, to its values by figure name. An absent value is unknown.
Rows = Mapping[Any, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of every row.

    heading: on the terminal; "" hides it there. form: format of a value after multiplication by
    `scale`. The file has the unscaled value in `unit`.
    """

    figure: str
    unit: str = "1"
    heading: str = ""
    form: str = ",.4g"
    scale: float = 1.0

    def shown(self, values: Mapping[str, float]) -> str:
        """Return the value as text."""
        value = values.get(self.figure)
        return "-" if value is None else f"{self.scale * value:{self.form}}"


def figures(rows: Rows, columns: Sequence[Column]) -> list[Figure]:
    """Return all values as `label/label/figure`."""
    return [
        Figure("/".join((*labels, column.figure)), values[column.figure], column.unit)
        for labels, values in rows.items()
        for column in columns
        if column.figure in values
    ]


def show(title: str, labels: Sequence[str], rows: Rows, columns: Sequence[Column]) -> None:
    """Print a table of the columns that have a heading. labels: headings of the labels."""
    shown = [column for column in columns if column.heading]
    cells = [
        (*names, *(column.shown(values) for column in shown)) for names, values in rows.items()
    ]
    print_table(title, (*labels, *(column.heading for column in shown)), cells, len(labels))


def print_table(
    title: str, columns: Sequence[str], cells: Iterable[Sequence[str]], labels: int = 1
) -> None:
    """Print a table under its title."""
    print(f"{title}\n{markdown(columns, cells, labels)}\n", flush=True)


def markdown(columns: Sequence[str], cells: Iterable[Sequence[str]], labels: int = 1) -> str:
    """Return a table in Markdown. The first `labels` columns are text, the others numbers."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    align = ["left"] * labels + ["right"] * (len(columns) - labels)
    text: str = tabulate(
        rows, columns, "pipe", colalign=align if rows else None, disable_numparse=True
    )
    return text
