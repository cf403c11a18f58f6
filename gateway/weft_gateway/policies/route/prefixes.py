"""Where prompts that begin alike were sent: what a new program's home is chosen by. Pure.

Advice and no more. Whoever looks here believes that a replica still has what it was sent; where it
has not, a prompt is computed as it would have been elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Sequence
from typing import Final

from weft_gateway.model import PromptPrefix, Shared

# So many programs that got a home last tell how many ask for what.
_LAST: Final = 256


class _Held:
    """What one replica was sent. marks: tokens of each, the longest unused first."""

    __slots__ = ("_used", "marks")

    def __init__(self) -> None:
        self.marks: OrderedDict[int, int] = OrderedDict()
        self._used = 0

    def known(self, marks: Sequence[int]) -> int:
        """How many of the marks are held. Of a chain the last is forgotten first, so whoever has a
        mark has all before it."""
        return bisect_left(marks, True, key=self._lacks)

    def sent(self, beginning: PromptPrefix, room: int) -> None:
        """Hold a beginning, and forget what there is no room for, tokens."""
        marks = self.marks
        for mark in reversed(beginning.marks):
            if mark in marks:
                marks.move_to_end(mark)
            else:
                marks[mark] = beginning.step_tokens
                self._used += beginning.step_tokens
        while self._used > room:
            self._used -= marks.popitem(last=False)[1]

    def _lacks(self, mark: int) -> bool:
        return mark not in self.marks


class PrefixAffinityIndex:
    """The beginnings that each replica was sent last, as many as its cache can hold.

    room_tokens: of a replica's prefix cache, where nobody has told it.
    """

    def __init__(self, room_tokens: int) -> None:
        if room_tokens < 0:
            raise ValueError(f"room_tokens must not be negative, got {room_tokens}")
        self._room_tokens = room_tokens
        self._rooms: dict[str, int] = {}
        self._held: dict[str, _Held] = {}
        self._last: deque[PromptPrefix] = deque()
        # Of the last programs, those that begin with a mark.
        self._asked: Counter[int] = Counter()

    def shared(self, beginning: PromptPrefix, replicas: Collection[str]) -> Shared | None:
        """What is known of a beginning at these replicas; None where it tells them not apart.

        What many programs begin with is wanted at many replicas: of n, a share s of all programs
        wants n * s. While fewer have it, it counts for nothing, and the load decides who is next.
        """
        marks, step = beginning.marks, beginning.step_tokens
        known = {name: self._of(name).known(marks) for name in replicas}
        levels = sorted(known.values())
        if levels[0] == levels[-1]:
            return None
        count, without = len(levels), 0
        # The first few programs of a gateway tell little of what the next will ask for.
        share = count / (len(self._last) + 2 * count)
        worth = [0]
        for reach in range(levels[-1]):
            while levels[without] <= reach:
                without += 1
            enough = count - without >= self._asked[marks[reach]] * share
            worth.append(worth[-1] + (step if enough else 0))
        return Shared({name: worth[reach] for name, reach in known.items()})

    def sent(self, replica: str, beginning: PromptPrefix) -> None:
        """A program with this beginning got its home there."""
        if len(self._last) == _LAST:
            gone = self._last.popleft().marks
            self._asked.subtract(gone)
            for mark in gone:
                if not self._asked[mark]:
                    del self._asked[mark]
        self._last.append(beginning)
        self._asked.update(beginning.marks)
        self._of(replica).sent(beginning, self._rooms.get(replica, self._room_tokens))

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
