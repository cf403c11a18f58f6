"""Where prompts that begin alike were sent: what a new program's home is chosen by. Pure.

Advice and no more. Whoever looks here believes that a replica still has what it was sent; where it
has not, a prompt is computed as it would have been elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from gateway.model import Beginning, Shared

# Homes given last, over all replicas, that count for balance.
_HOMES: Final = 256


class Beginnings:
    """The beginnings that each replica was sent last, as many as its cache can hold.

    room_tokens: of a replica's KV cache, where nobody has told it. A beginning is used with all
    that follows it, so of a chain of marks the last is forgotten first: a replica that has a mark
    has all before it.
    """

    def __init__(self, room_tokens: int) -> None:
        if room_tokens < 0:
            raise ValueError(f"room_tokens must not be negative, got {room_tokens}")
        self._room_tokens = room_tokens
        self._rooms: dict[str, int] = {}
        # By replica: marks and the tokens that each stands for alone, the longest unused first.
        self._held: dict[str, OrderedDict[int, float]] = {}
        self._used: dict[str, float] = {}
        self._last: deque[str] = deque()
        self._homes: Counter[str] = Counter()

    def shared(self, beginning: Beginning, replicas: Iterable[str]) -> Shared | None:
        """What is known of a beginning at these replicas, None where none of them was sent it."""
        marks, tokens = beginning.marks, {}
        for name in replicas:
            held = self._held.get(name)
            if held and marks[0] in held:
                known = bisect_left(marks, True, 1, key=lambda mark, held=held: mark not in held)
                tokens[name] = round(known * beginning.step_tokens)
        return Shared(tokens, self._homes) if tokens else None

    def sent(self, replica: str, beginning: Beginning) -> None:
        """A program with this beginning got its home there."""
        if len(self._last) == _HOMES:
            self._homes[self._last.popleft()] -= 1
        self._last.append(replica)
        self._homes[replica] += 1
        held = self._held.setdefault(replica, OrderedDict())
        used = self._used.get(replica, 0.0)
        for mark in reversed(beginning.marks):
            if mark not in held:
                held[mark] = beginning.step_tokens
                used += beginning.step_tokens
            held.move_to_end(mark)
        room = self._rooms.get(replica, self._room_tokens)
        while used > room:
            used -= held.popitem(last=False)[1]
        self._used[replica] = used

    def room(self, replica: str, tokens: int) -> None:
        """A replica has told the size of its KV cache."""
        self._rooms[replica] = tokens

    def forget(self, replica: str) -> None:
        """A replica has lost its cache."""
        self._held.pop(replica, None)
        self._used.pop(replica, None)
