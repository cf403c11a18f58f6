"""The systems, workloads and loads to play, and the time limit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

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
