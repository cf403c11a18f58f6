"""Our reading of pause and resume by thresholds, as the documentation of vllm-router 0.1.17
describes its program scheduling: the router counts the contexts of its active programs, pauses
programs between their calls when these pass the replica's token capacity, and resumes them below a
threshold, the longest-paused one first, or after a limit of time. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

# Shares of a replica's tokens: above the first, programs are paused; a program is resumed if the
# active ones and its own context stay below the second.
PAUSE: Final = 0.95
RESUME: Final = 0.80
# The documentation's `force_resume_timeout_seconds`.
FORCE_S: Final = 300.0


@dataclass(slots=True)
class _Active:
    """A program that may call. open_: its calls at the replica. tokens: of its largest open or last
    context. began: its place in the order of activation."""

    replica: str
    tokens: int
    began: int
    open_: int = 0


class PauseAndResume:
    """The gate of a router. room: tokens of each replica's cache."""

    def __init__(self, room: Mapping[str, int]) -> None:
        self._room = room
        self._active: dict[str, _Active] = {}
        # Held calls, the first one first: (program, number) to tokens and since when.
        self._held: dict[tuple[str, int], tuple[int, float]] = {}
        self._began = 0

    def arrive(self, program: str, number: int, tokens: int, now: float) -> str | None:
        """A call arrives, or one that is due. Returns its replica, or None if it is held: it comes
        again when it is released, and at the latest after FORCE_S.
        """
        key = program, number
        active = self._active.get(program)
        if active is None:
            since = self._held.get(key, (tokens, now))[1]
            replica = self._with_room(tokens, forced=now - since >= FORCE_S)
            others = next(iter(self._held), key)[0] != program
            if replica is None or (others and now - since < FORCE_S):
                self._held.setdefault(key, (tokens, now))
                return None
            active = self._activate(program, tokens, replica)
        self._held.pop(key, None)
        active.tokens = max(active.tokens, tokens)
        active.open_ += 1
        return active.replica

    def waits(self, program: str, number: int) -> bool:
        """Return whether a call is held."""
        return (program, number) in self._held

    def answered(self, program: str, tokens: int) -> None:
        """A call of a program ended with a context of this size."""
        one = self._active[program]
        one.open_ -= 1
        one.tokens = tokens
        # The last ones first, so that the others end.
        while self._used(one.replica) > PAUSE * self._room[one.replica]:
            idle = [
                (other.began, name)
                for name, other in self._active.items()
                if other.replica == one.replica and not other.open_
            ]
            if not idle:
                break
            del self._active[max(idle)[1]]

    def over(self, program: str) -> None:
        """A program has ended."""
        self._active.pop(program, None)

    def released(self) -> Iterator[tuple[str, int]]:
        """Release the held calls that fit now, in turn, and yield them."""
        for program, number in list(self._held):
            if program not in self._active:
                tokens = self._held[program, number][0]
                replica = self._with_room(tokens)
                if replica is None:
                    return
                self._activate(program, tokens, replica)
            del self._held[program, number]
            yield program, number

    def _activate(self, program: str, tokens: int, replica: str) -> _Active:
        self._began += 1
        self._active[program] = found = _Active(replica, tokens, self._began)
        return found

    def _used(self, replica: str) -> int:
        return sum(one.tokens for one in self._active.values() if one.replica == replica)

    def _with_room(self, tokens: int, *, forced: bool = False) -> str | None:
        """Return the replica with the most room for a context, or None."""
        used = {name: self._used(name) for name in self._room}
        name = min(used, key=lambda one: used[one] / self._room[one])
        fits = used[name] + tokens <= RESUME * self._room[name]
        return name if forced or fits or not used[name] else None
