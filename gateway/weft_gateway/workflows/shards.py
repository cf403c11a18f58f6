"""Divides the rows of a run into parts for several machines, by prefix group. Pure.

The rows of a group have prompts with a common beginning, so one machine computes it once. Groups
are taken in the order of their first rows. A part ends between two groups, unless it would become
more than a tenth too small or too large: then a group is cut. An input whose groups are not mixed
is therefore cut into consecutive rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final

import orjson

from weft_gateway.workflows.graph import Workflow
from weft_gateway.workflows.groups import leading_columns

# The part of a machine's rows by which a cut may move.
_SLACK: Final = 0.1


def group_columns(workflow: Workflow) -> tuple[str, ...]:
    """Return the columns whose values name the group of a row: the leading columns. The last of
    several is left out, because it usually differs in each row.
    """
    path = leading_columns(workflow)
    return path[:-1] or path


def group_numbers(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> array[int]:
    """Return the number of the group of each row, in the order of their first rows."""
    known: dict[bytes, int] = {}
    found = array("L")
    for row in rows:
        values = orjson.dumps([row.get(name) for name in columns])
        key = blake2b(values, digest_size=12).digest()
        found.append(known.setdefault(key, len(known)))
    return found


def part_of(groups: Sequence[int], number: int, count: int) -> bytearray:
    """Return a flag for each row: whether it belongs to part `number`, from 1, of `count`. groups:
    as `group_numbers` returns them. Each row belongs to one part.
    """
    sizes = Counter(groups)
    ends = list(accumulate(sizes[group] for group in range(len(sizes))))
    places = [end - sizes[group] for group, end in enumerate(ends)]
    start, stop = (_cut(ends, len(groups), at, count) for at in (number - 1, number))
    flags = bytearray(len(groups))
    for row, group in enumerate(groups):
        flags[row] = start <= places[group] < stop
        places[group] += 1
    return flags


def _cut(ends: Sequence[int], rows: int, at: int, count: int) -> int:
    """Return the place at which part `at` ends: that of the nearest end of a group, if near."""
    ideal = rows * at // count
    if at in (0, count):
        return ideal
    near = bisect_left(ends, ideal)
    best = min((ends[i] for i in (near - 1, near) if 0 <= i < len(ends)),
               key=lambda end: abs(end - ideal), default=ideal)  # fmt: skip
    return best if abs(best - ideal) <= _SLACK * rows / count else ideal
