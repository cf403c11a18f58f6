"""Records which replica received which prompt prefixes, to choose the home of a new program. Pure.

The record is advisory. It assumes that a replica still holds the prefixes that it received. If not,
the prompt is computed as on any other replica.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Sequence
from typing import Final

from weft_gateway.model import PromptPrefix, Shared

# Number of recent programs that determine how many programs request a prefix.
_LAST: Final = 256


class _HeldPrefixes:
    """The prefixes that one replica received. marks: tokens of each, least recently used first."""

    __slots__ = ("_used", "marks")

    def __init__(self) -> None:
        self.marks: OrderedDict[int, int] = OrderedDict()
        self._used = 0

    def known(self, marks: Sequence[int]) -> int:
        """Return the number of leading marks that are held. The last marks of a chain are evicted
        first, so a held mark implies all before it.
        """
        return bisect_left(marks, True, key=self._lacks)

    def sent(self, prefix: PromptPrefix, room: int) -> None:
        """Add a prefix, and evict the oldest marks beyond `room` tokens."""
        marks = self.marks
        for mark in reversed(prefix.marks):
            if mark in marks:
                marks.move_to_end(mark)
            else:
                marks[mark] = prefix.step_tokens
                self._used += prefix.step_tokens
        while self._used > room:
            self._used -= marks.popitem(last=False)[1]

    def _lacks(self, mark: int) -> bool:
        return mark not in self.marks


class PrefixAffinityIndex:
    """The most recent prefixes that each replica received, up to the size of its prefix cache.

    room_tokens: default size of a replica's prefix cache, for replicas that report none.
    """

    def __init__(self, room_tokens: int) -> None:
        if room_tokens < 0:
            raise ValueError(f"room_tokens must not be negative, got {room_tokens}")
        self._room_tokens = room_tokens
        self._rooms: dict[str, int] = {}
        self._held: dict[str, _HeldPrefixes] = {}
        self._last: deque[PromptPrefix] = deque()
        # The number of recent programs that begin with each mark.
        self._asked: Counter[int] = Counter()

    def shared(self, prefix: PromptPrefix, replicas: Collection[str]) -> Shared | None:
        """Return the tokens of a prefix held by these replicas; None if all replicas match equally.

        A prefix that many programs share is wanted on many replicas: of n replicas, a share s of
        all programs wants n * s. While fewer replicas hold it, it does not count, and the load
        decides.
        """
        marks, step = prefix.marks, prefix.step_tokens
        known = {name: self._of(name).known(marks) for name in replicas}
        levels = sorted(known.values())
        if levels[0] == levels[-1]:
            return None
        count, without = len(levels), 0
        # The first few programs of a gateway are a weak estimate of later requests.
        share = count / (len(self._last) + 2 * count)
        worth = [0]
        for reach in range(levels[-1]):
            while levels[without] <= reach:
                without += 1
            enough = count - without >= self._asked[marks[reach]] * share
            worth.append(worth[-1] + (step if enough else 0))
        return Shared({name: worth[reach] for name, reach in known.items()})

    def sent(self, replica: str, prefix: PromptPrefix) -> int:
        """Record that a program with this prefix got its home there. Returns how many tokens of it
        the replica had received before.
        """
        if len(self._last) == _LAST:
            gone = self._last.popleft().marks
            self._asked.subtract(gone)
            for mark in gone:
                if not self._asked[mark]:
                    del self._asked[mark]
        self._last.append(prefix)
        self._asked.update(prefix.marks)
        held = self._of(replica)
        known = held.known(prefix.marks) * prefix.step_tokens
        held.sent(prefix, self._rooms.get(replica, self._room_tokens))
        return known

    def room(self, replica: str, tokens: int) -> None:
        """Set the size of a replica's prefix cache, from its report."""
        self._rooms[replica] = tokens

    def forget(self, replica: str) -> None:
        """Forget a replica's prefixes after it has lost its cache."""
        self._held.pop(replica, None)

    def drop(self, replica: str) -> None:
        """Forget a replica that was removed."""
        self.forget(replica)
        self._rooms.pop(replica, None)

    def _of(self, replica: str) -> _HeldPrefixes:
        held = self._held.get(replica)
        if held is None:
            held = self._held[replica] = _HeldPrefixes()
        return held
