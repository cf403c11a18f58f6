"""What this gateway has observed of silences between calls, by kind of program."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from weft_gateway.model import Opened, ProgramKey
from weft_gateway.policies.retain.idle import BUCKETS, IdlePolicy, bucket

UNNAMED: Final = "lineage"
_KINDS: Final = 1024
_ENDED: Final = 4096
_LOOK_EVERY: Final = 16
_FADE_AT: Final = 2048


class Kind(NamedTuple):
    """Programs that are alike. source: the name by which the client marks them."""

    tenant: str
    source: str
    model: str


class _Observed:
    __slots__ = ("gaps", "idle_s", "total")

    def __init__(self, idle_s: float) -> None:
        self.gaps = [0] * BUCKETS
        self.total = 0
        self.idle_s = idle_s


class IdleTimes:
    """Learns, for each kind of program, after which silence one is taken for ended.

    It keeps counts of the latest kinds, in a bounded memory; old counts fade, so that it follows
    what changes.
    """

    def __init__(self, policy: IdlePolicy) -> None:
        self._policy = policy
        self._kinds: OrderedDict[Kind, _Observed] = OrderedDict()
        self._ended: OrderedDict[ProgramKey, float] = OrderedDict()

    def idle_s(self, kind: Kind) -> float:
        """After how many seconds of silence a program of this kind is taken for ended."""
        observed = self._kinds.get(kind)
        return self._at_first(kind) if observed is None else observed.idle_s

    def sooner_s(self, kind: Kind) -> float:
        """The same as seconds before the longest time that any program is given."""
        return self._policy.longest_s - self.idle_s(kind)

    def opened(self, kind: Kind, opened: Opened, now_s: float) -> None:
        """A call of a named program was opened at `now_s`."""
        program = opened.program
        if opened.created:
            # It had been taken for ended, and was not.
            since_s = self._ended.pop(program.key, None)
            if since_s is not None:
                self._saw(kind, now_s - since_s)
        elif program.last_completion_s and len(program.threads) == 1:
            self._saw(kind, now_s - program.last_completion_s)

    def ended(self, keys: Iterable[ProgramKey], now_s: float) -> None:
        """These programs were taken for ended at `now_s`. Their silence had lasted for the shortest
        time at least."""
        for key in keys:
            self._ended[key] = now_s - self._policy.shortest_s
            self._ended.move_to_end(key)
        while len(self._ended) > _ENDED:
            self._ended.popitem(last=False)

    def _at_first(self, kind: Kind) -> float:
        """What a kind is given of which nothing is known. A call that nobody has named is often a
        program of its own: its row need not wait long, and lineage knows it longer than that."""
        policy = self._policy
        return policy.shortest_s if kind.source == UNNAMED else policy.longest_s

    def _saw(self, kind: Kind, gap_s: float) -> None:
        observed = self._kinds.get(kind)
        if observed is None:
            observed = self._kinds[kind] = _Observed(self._at_first(kind))
            if len(self._kinds) > _KINDS:
                self._kinds.popitem(last=False)
        observed.gaps[bucket(gap_s)] += 1
        observed.total += 1
        if observed.total % _LOOK_EVERY:
            return
        self._kinds.move_to_end(kind)
        if observed.total >= self._policy.enough:
            observed.idle_s = self._policy.idle_s(observed.gaps)
        if observed.total >= _FADE_AT:
            observed.gaps = [count // 2 for count in observed.gaps]
            observed.total = sum(observed.gaps)
