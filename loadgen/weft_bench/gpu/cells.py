"""Cells of `weft bench gpu`: what to play, and the results of many runs in one file.

Each run adds cells. All cells have the same host, versions and configuration.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from weft_bench.report import gpu as report
from weft_bench.report.figures import write_json

# Fewer programs give no reliable mean.
FEWEST: Final = 3


@dataclass(frozen=True, slots=True)
class Cell:
    """One play: a system and a workload at a load, which is a share of the capacity."""

    system: str
    workload: str
    load: float

    @property
    def scene(self) -> str:
        """The name of the programs and arrivals, which the cells of the other systems share."""
        return f"{self.workload}/{self.load:g}"

    @property
    def key(self) -> str:
        """The cell's name in the results."""
        return f"{self.scene}/{self.system}"


def cells(systems: Iterable[str], workloads: Sequence[str], loads: Sequence[float]) -> list[Cell]:
    """Return all cells, grouped by system: each system is one engine start."""
    return [Cell(s, w, load) for s in systems for w in workloads for load in loads]


def by_system(left: Iterable[Cell]) -> list[tuple[str, list[Cell]]]:
    """Group consecutive cells with the same engine."""
    return [(system, list(found)) for system, found in groupby(left, lambda cell: cell.system)]


def count(rate: float, window_s: float) -> int:
    """Return the number of programs that arrive in the window, the same for all systems.

    rate: programs per second.
    """
    return max(FEWEST, round(rate * window_s))


def plateau(tokens: Sequence[tuple[float, float]]) -> float:
    """Return the tokens per second of an engine that always has enough work.

    tokens: (seconds, tokens so far), in order. The rate is between a fifth and four fifths of the
    tokens: before, the batch fills up, and afterwards only the last programs run. 0 without any
    tokens.
    """
    if not tokens or tokens[-1][1] <= 0:
        return 0.0
    total = tokens[-1][1]
    first = next(at for at in tokens if at[1] >= 0.2 * total)
    last = next(at for at in tokens if at[1] >= 0.8 * total)
    if last[0] <= first[0]:
        first, last = tokens[0], tokens[-1]
    return (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else 0.0


COMMAND: Final = "weft bench gpu"


class ResultsError(ValueError):
    """The file's results differ from this run in host, versions or configuration.

    The message lists the differences.
    """


@dataclass(slots=True)
class Results:
    """Results of a bench.

    host: from `Host.record`. versions: from `Host.versions`. configuration: shared by all cells.
    cells: figures by `Cell.key`. capacity: programs per second by workload. engines: start options
    by system.
    """

    host: dict[str, Any]
    versions: dict[str, str]
    configuration: dict[str, Any]
    cells: dict[str, dict[str, float]] = field(default_factory=dict)
    capacity: dict[str, float] = field(default_factory=dict)
    engines: dict[str, dict[str, Any]] = field(default_factory=dict)

    def set_capacity(self, given: Mapping[str, float]) -> None:
        """Set rates that the user gives.

        Raises ResultsError if cells were played with other rates: the systems would be compared on
        different programs.
        """
        for workload, rate in given.items():
            known = self.capacity.get(workload, rate)
            played = any(key.startswith(f"{workload}/") for key in self.cells)
            if played and known != rate:
                raise ResultsError(
                    f"cells of {workload} were played with a capacity of {known:g} programs/s, not "
                    f"{rate:g}"
                )
            self.capacity[workload] = rate


_ALIKE: Final = ("host", "versions", "configuration")
_ADDED: Final = ("cells", "capacity", "engines")


def load(path: Path, mine: Results) -> None:
    """Add the cells of the file, if it exists.

    Raises ResultsError if it holds something else, or its host, versions or configuration differ.
    """
    if not path.exists() or not path.stat().st_size:
        return
    try:
        document = json.loads(path.read_text())
        if document["command"] != COMMAND:
            raise ValueError(f"it holds no results of {COMMAND}")
        for part in _ALIKE:
            theirs, ours = document[part], json.loads(json.dumps(getattr(mine, part)))
            unlike = [n for n in {**theirs, **ours} if theirs.get(n) != ours.get(n)]
            if unlike:
                told = (f"{n} {theirs.get(n)!r}, here {ours.get(n)!r}" for n in unlike)
                raise ValueError(f"it has another {part}: {', '.join(told)}")
        for part in _ADDED:
            getattr(mine, part).update(document[part])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ResultsError(f"{path}: {error}; write to another file with --json") from None


def save(path: Path, mine: Results) -> None:
    """Write all results atomically. Raises OSError."""
    part = path.with_name(f"{path.name}.part")
    extra = {name: getattr(mine, name) for name in ("host", "versions", *_ADDED)}
    write_json(part, COMMAND, mine.configuration, report.figures(mine.cells), extra)
    part.replace(path)
