"""The windows of calls: at most a number of calls in flight for each replica. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sortedcontainers import SortedList

from weft_run.plan.commands import ANY, Turn
from weft_run.plan.frames import Order, Unit

# Calls in flight for each slot of an engine: the next call never waits for the network.
AHEAD: Final = 1.25
# Turn, row, position in the row, and a number that makes entries different.
Entry = tuple[Turn, int, Order, int, Unit]


@dataclass(slots=True, eq=False)
class _Window:
    slots: int
    in_flight: int = 0
    waiting: SortedList[Entry] = field(default_factory=SortedList)


class Windows:
    """Windows by replica, with the calls that wait for each; `ANY` has those for any replica."""

    def __init__(
        self,
        slots: Mapping[str, int],
        serves: Mapping[str, frozenset[str]] | None = None,
        speeds: Mapping[str, float] | None = None,
    ) -> None:
        """slots: calls that may be in flight. serves: models by window; windows help only those
        with the same models. speeds: as in `costs.relative_speeds`; 1 for windows without an entry.
        """
        self._windows = {name: _Window(count) for name, count in slots.items()}
        self._serves = dict(serves or {})
        self._speeds = dict(speeds or {})
        self._any = self._windows.setdefault(ANY, _Window(0))

    @property
    def in_flight(self) -> int:
        """Calls in flight."""
        return sum(window.in_flight for window in self._windows.values())

    def resize(self, name: str, slots: int) -> None:
        """Change a window, or add one."""
        self._windows.setdefault(name, _Window(0)).slots = slots

    def put(self, name: str, entry: Entry) -> None:
        """Let a call wait for a replica; for an unknown one, for any."""
        self._windows.get(name, self._any).waiting.add(entry)

    def sources(self) -> Iterator[tuple[str, SortedList[Entry], int]]:
        """Yield each window with a free slot, the queue from which it takes its next call, and the
        place of that call: 0 for the first one, -1 for the last one.

        A window takes from its queue, or from that for any replica. If both are empty, it helps the
        longest full window whose owner would end its last call later. It takes the latest turn,
        because the owner has the prefixes of the first ones.
        Calls for any replica go to the fastest one, taking its calls into account.
        """
        names = sorted(self._windows, key=self._pace) if self._any.waiting else self._windows
        for name in names:
            window = self._windows[name]
            if window.in_flight >= window.slots:
                continue
            if window.waiting or self._any.waiting:
                yield name, window.waiting or self._any.waiting, 0
                continue
            models = self._serves.get(name)
            full = [
                one.waiting
                for other, one in self._windows.items()
                if one.in_flight >= one.slots
                and self._serves.get(other) == models
                and self._ends_sooner(name, other)
            ]
            longest = max(full, key=len, default=None)
            if longest:
                yield name, longest, -1

    def _pace(self, name: str) -> float:
        """Return the relative time of a call at a window. A full replica takes twice as long for a
        step as one that only reads the weights.
        """
        window = self._windows[name]
        return (1 + window.in_flight / max(1, window.slots)) / self._speeds.get(name, 1.0)

    def _ends_sooner(self, name: str, owner: str) -> bool:
        """Whether a window with a free slot ends the last waiting call of a full one first. It does
        so after 1 / speed; the owner needs as long for each full window of calls before it, too.
        """
        one = self._windows[owner]
        own, speed = self._speeds.get(owner, 1.0), self._speeds.get(name, 1.0)
        return own * one.slots < speed * (one.slots + len(one.waiting))

    def take(self, name: str) -> None:
        """A call was sent."""
        self._windows[name].in_flight += 1

    def give_back(self, name: str) -> None:
        """A call has ended."""
        self._windows[name].in_flight -= 1
