"""The steady part of a simulation, without the ramp-up and the drain. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft_bench.virtual.records import ProgramRecord


@dataclass(frozen=True, slots=True)
class Window:
    """Programs that arrived in [begin_s, end_s).

    loaded: share of them that ended while programs still arrived. The others ended in the drain,
    with less competition. A window with a low share therefore flatters the programs that end last.
    """

    programs: tuple[ProgramRecord, ...]
    begin_s: float
    end_s: float
    loaded: float


def steady(programs: Sequence[ProgramRecord], first: float = 0.25, last: float = 0.75) -> Window:
    """Return the programs that arrived in the middle part of the arrivals.

    The part runs from share `first` to share `last` of the time between the first and the last
    arrival. Before it the system fills up; later programs keep up the load. Raises ValueError if
    the shares are out of order or no program arrived in that part.
    """
    if not 0 <= first < last <= 1:
        raise ValueError(f"a window must lie between 0 and 1, got {first} to {last}")
    arrivals = [program.arrival_s for program in programs]
    if not arrivals:
        raise ValueError("no programs")
    begin, span = min(arrivals), max(arrivals) - min(arrivals)
    start, end = begin + first * span, begin + last * span
    inside = tuple(p for p in programs if start <= p.arrival_s < end)
    if not inside:
        raise ValueError(f"no program arrived between {start:g} s and {end:g} s")
    over = max(arrivals)
    loaded = sum(program.end_s <= over for program in inside) / len(inside)
    return Window(inside, start, end, loaded)
