"""What is played: systems, workloads and loads, and the time that there is for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

WORKLOADS: Final = ("sharegpt", "bfcl", "lats", "mixed")
LOADS: Final = (0.5, 0.8, 1.0)
# Fewer programs say nothing of a mean.
FEWEST: Final = 3


@dataclass(frozen=True, slots=True)
class Cell:
    """One play: a system under a workload at a load, a share of the capacity."""

    system: str
    workload: str
    load: float

    @property
    def scene(self) -> str:
        """What it has in common with the other systems' cells: programs and arrivals."""
        return f"{self.workload}/{self.load:g}"

    @property
    def key(self) -> str:
        """Its name in the results."""
        return f"{self.scene}/{self.system}"


def cells(systems: Iterable[str], workloads: Sequence[str], loads: Sequence[float]) -> list[Cell]:
    """All of them, one system after the other: each is one start of an engine."""
    return [Cell(s, w, load) for s in systems for w in workloads for load in loads]


def by_system(left: Iterable[Cell]) -> list[tuple[str, list[Cell]]]:
    """Cells that follow each other with the same engine."""
    return [(system, list(found)) for system, found in groupby(left, lambda cell: cell.system)]


def count(rate: float, window_s: float) -> int:
    """Programs that come in the window, the same for all systems. rate: programs a second."""
    return max(FEWEST, round(rate * window_s))


@dataclass(frozen=True, slots=True)
class Budget:
    """The wall time of a run. begun_s: by the clock that `fits` is asked with."""

    begun_s: float
    seconds: float

    def fits(self, now_s: float, needed_s: float) -> bool:
        """Whether what takes so long ends in time."""
        return now_s + needed_s <= self.begun_s + self.seconds

    def left_s(self, now_s: float) -> float:
        """Seconds left, 0 at least."""
        return max(0.0, self.begun_s + self.seconds - now_s)


def plateau(tokens: Sequence[tuple[float, float]]) -> float:
    """Tokens a second of an engine that always has enough to do.

    tokens: (seconds, tokens so far), in order. Between a fifth and four fifths of the tokens:
    before, the batch fills up, and after it the last programs are alone. 0 where nothing was made.
    """
    if not tokens or tokens[-1][1] <= 0:
        return 0.0
    total = tokens[-1][1]
    first = next(at for at in tokens if at[1] >= 0.2 * total)
    last = next(at for at in tokens if at[1] >= 0.8 * total)
    if last[0] <= first[0]:
        first, last = tokens[0], tokens[-1]
    return (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else 0.0
