"""Tables of a study from its measured cells. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import NamedTuple

from weft_bench.studies.cells import Cell, Estimate, Measured, geometric
from weft_bench.studies.curves import Throughput, doubled, throughput_ratio
from weft_bench.studies.study import ROW, Column, Study, Table

_SYSTEM = "system"
_LOAD = "rate"


class Made(NamedTuple):
    """A table as text. The first `labels` columns are text, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int


def tables(study: Study, found: Measured) -> list[Made]:
    """Return the tables of a study. Tables without measured cells are left out."""
    made = [table_of(one, found) for one in study.tables]
    return [one for one in made if one.rows]


def table_of(table: Table, found: Measured) -> Made:
    """Return one table."""
    if table.cases:
        found = Measured({c: v for c, v in found.values.items() if c["case"] in table.cases})
    columns = [
        one
        for heading, column in table.columns.items()
        for one in _expanded(heading, Column(column) if isinstance(column, str) else column, found)
    ]
    rows = []
    for row in _rows(found, table.rows):
        cells = [_shown(column, level, row, table.rows, found) for _, column, level in columns]
        rows.append((*map(str, row), *cells))
    headings = (*table.rows, *(heading for heading, _, _ in columns))
    return Made(table.title, headings, rows, len(table.rows))


# A heading, its column, and the settings that its cells have.
_One = tuple[str, Column, dict[str, object]]


def _expanded(heading: str, column: Column, found: Measured) -> Iterator[_One]:
    if not column.each:
        yield heading, column, {}
        return
    for level in found.levels(column.each):
        yield f"{heading} {level}".strip(), column, {column.each: level}


def _rows(found: Measured, settings: Sequence[str]) -> list[tuple[object, ...]]:
    """Return the measured combinations of these settings, in the order of the cells."""
    some = ([dict(cell.settings).get(name, "-") for name in settings] for cell in found.values)
    return list(dict.fromkeys(map(tuple, some)))


def _shown(
    column: Column, level: dict[str, object], row: Sequence[object], names: Sequence[str],
    found: Measured,
) -> str:  # fmt: skip
    if column.published:
        return column.published.get(", ".join(map(str, row)), "-")
    told = {name: value for name, value in zip(names, row, strict=True) if value != "-"} | level
    system = str(told.get(_SYSTEM, ""))
    ours, theirs = column.of or system, column.over or system
    if column.load:
        return str(_load(column, told, ours, theirs, found))
    one = found.where(**{**told, _SYSTEM: ours} if column.of else told)
    if not (column.of or column.over):
        return str(one.estimate(column.figure))
    if ours == theirs:
        return "-"
    return str(ratio(one, found.where(**{**told, _SYSTEM: theirs}), column.figure))


def ratio(ours: Measured, theirs: Measured, figure: str) -> Estimate:
    """Return the geometric mean of a figure over another system's in the same scenes and seeds.

    Each seed counts once, with its mean over the scenes. Scenes that only one system has, or with a
    0, are left out.
    """
    base = {_scene(cell): values.get(figure, 0.0) for cell, values in theirs.values.items()}
    logs: dict[int, list[float]] = {}
    for cell, values in ours.values.items():
        mine, other = values.get(figure, 0.0), base.get(_scene(cell), 0.0)
        if mine > 0 and other > 0:
            logs.setdefault(cell.seed, []).append(log(mine / other))
    return geometric([sum(one) / len(one) for one in logs.values()])


def _scene(cell: Cell) -> tuple[object, ...]:
    return (*(one for one in cell.settings if one[0] != _SYSTEM), cell.seed)


def _load(
    column: Column, told: dict[str, object], ours: str, theirs: str, found: Measured
) -> Throughput | str:
    """Return the ratio of two systems' loads at an equal figure."""
    at = found.where(**{k: v for k, v in told.items() if k not in (_SYSTEM, _LOAD)})
    mine, other = at.where(system=ours), at.where(system=theirs)
    if ours == theirs or not mine or not other:
        return "-"
    if column.load == ROW:
        level = other.where(rate=told[_LOAD]).series(column.figure)
    else:
        level = doubled(at.where(system=column.load), column.figure)
    return throughput_ratio(mine, other, level, column.figure)
