"""Where prompts that begin alike were sent: what a new program's home is chosen by. Pure.

Advice and no more. Whoever looks here believes that a replica still has what it was sent; where it
has not, a prompt is computed as it would have been elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Sequence
from typing import Final

from gateway.model import Beginning, Shared

# Homes given last, over all replicas, that count for balance.
_HOMES: Final = 256


class _Held:
    """What one replica was sent. marks: tokens of each, and whether it was sent again, the longest
    unused first. used: tokens in all."""

    __slots__ = ("marks", "used")

    def __init__(self) -> None:
        self.marks: OrderedDict[int, tuple[int, bool]] = OrderedDict()
        self.used = 0

    def known(self, marks: Sequence[int]) -> int:
        """How many of the marks are held. Of a chain the last is forgotten first, so whoever has a
        mark has all before it."""
        return bisect_left(marks, True, key=self._lacks)

    def sent(self, beginning: Beginning, room: int) -> None:
        """Hold a beginning, and forget what there is no room for."""
        marks = self.marks
        for mark in reversed(beginning.marks):
            if mark in marks:
                marks[mark] = marks[mark][0], True
                marks.move_to_end(mark)
            else:
                marks[mark] = beginning.step_tokens, False
                self.used += beginning.step_tokens
        while self.used > room:
            self.used -= marks.popitem(last=False)[1][0]

    def lost(self, tokens: int) -> int:
        """Of the tokens that have to go to make room for so many, those that were sent more than
        once: what was sent once may never be again."""
        lost = 0
        for own, again in self.marks.values():
            if tokens <= 0:
                break
            tokens -= own
            lost += own if again else 0
        return lost

    def _lacks(self, mark: int) -> bool:
        return mark not in self.marks


class Beginnings:
    """The beginnings that each replica was sent last, as many as its cache can hold.

    room_tokens: of a replica's prefix cache, where nobody has told it.
    """

    def __init__(self, room_tokens: int) -> None:
        if room_tokens < 0:
            raise ValueError(f"room_tokens must not be negative, got {room_tokens}")
        self._room_tokens = room_tokens
        self._rooms: dict[str, int] = {}
        self._held: dict[str, _Held] = {}
        self._last: deque[str] = deque()
        self._homes: Counter[str] = Counter()

    def shared(self, beginning: Beginning, replicas: Collection[str]) -> Shared | None:
        """What is known of a beginning at these replicas; None where it tells them not apart."""
        known = {name: self._of(name).known(beginning.marks) for name in replicas}
        if len(set(known.values())) <= 1:
            return None
        step, tokens, lost = beginning.step_tokens, {}, {}
        for name, marks in known.items():
            held = self._of(name)
            missing = (len(beginning.marks) - marks) * step
            tokens[name] = marks * step
            lost[name] = held.lost(held.used + missing - self._room(name))
        return Shared(tokens, lost, dict(self._homes))

    def sent(self, replica: str, beginning: Beginning) -> None:
        """A program with this beginning got its home there."""
        if len(self._last) == _HOMES:
            self._homes[self._last.popleft()] -= 1
        self._last.append(replica)
        self._homes[replica] += 1
        self._of(replica).sent(beginning, self._room(replica))

    def room(self, replica: str, tokens: int) -> None:
        """A replica has told the size of its prefix cache."""
        self._rooms[replica] = tokens

    def forget(self, replica: str) -> None:
        """A replica has lost its cache."""
        self._held.pop(replica, None)

    def _of(self, replica: str) -> _Held:
        held = self._held.get(replica)
        if held is None:
            held = self._held[replica] = _Held()
        return held

    def _room(self, replica: str) -> int:
        return self._rooms.get(replica, self._room_tokens)
