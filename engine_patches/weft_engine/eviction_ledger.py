"""Which contents the cache has lost, and to whose calls. Pure: callers pass the time.

A call that computes tokens again learns from it who took their memory, and when. It only remembers
hashes, and at most as many as AGES caches hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from weft_engine.block_metadata import AGES


class Taking(NamedTuple):
    """Blocks of a cache that a program's call took in one step, "" for an unknown one."""

    program: str
    at: float


class Loss(NamedTuple):
    """Blocks that were cached before. program: the one that took the most of them; at: when it took
    some last."""

    blocks: int
    program: str
    at: float


_NOTHING: Final = Loss(0, "", 0.0)
_UNKNOWN: Final = ""


class EvictionLedger:
    """Lost contents by key. total: blocks in the cache."""

    def __init__(self, total: int) -> None:
        self._most = max(1, AGES * total // 2)
        # Two generations: dropping the older one costs nothing per key.
        self._young: dict[Any, Taking] = {}
        self._old: dict[Any, Taking] = {}
        # The contents of the blocks that this step has taken, by block.
        self._taken: dict[int, Any] = {}
        self.emptied_at: float | None = None
        """When the cache was emptied last; None: never."""

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def unsettled(self) -> bool:
        """Whether blocks were taken since the last `settle`."""
        return bool(self._taken)

    def taken(self, numbers: Sequence[int], keys: Sequence[Any]) -> None:
        """Free blocks were taken for other content. keys: of their contents, None without one."""
        # Most steps take empty blocks, and then cost nothing more.
        if keys.count(None) < len(keys):
            self._taken.update(zip(numbers, keys, strict=True))

    def settle(self, takers: Iterable[tuple[str, Sequence[int]]], now: float) -> None:
        """A step was scheduled: record what it took. takers: programs with blocks that they got in
        this step, among others."""
        taken, self._taken = self._taken, {}
        if len(self._young) + len(taken) > self._most:
            self._young, self._old = {}, self._young
        young = self._young
        for program, numbers in takers:
            mine = taken.keys() & numbers
            if mine:
                young.update(dict.fromkeys(map(taken.pop, mine), Taking(program, now)))
        # Calls that took blocks and have lost them again, such as preempted ones.
        young.update(dict.fromkeys(taken.values(), Taking(_UNKNOWN, now)))
        young.pop(None, None)

    def emptied(self, now: float) -> None:
        """The cache was emptied. No program took the blocks."""
        self._young, self._old, self._taken = {}, {}, {}
        self.emptied_at = now

    def loss(self, keys: Iterable[Any]) -> Loss:
        """Return what was lost of a context. keys: of its blocks that are not cached, in order."""
        young, old = self._young, self._old
        found = []
        for key in keys:
            found.append(young.get(key) or old.get(key))
            # The end of a context is lost before its beginning. A context that is new ends here.
            if found[0] is None:
                return _NOTHING
        if not found:
            return _NOTHING
        while found[-1] is None:
            found.pop()
        takings = Counter(found)
        # A key stands for all blocks before it: those without an entry were lost, too.
        takings.pop(None, None)
        return Loss(len(found), *_most(takings))


def _most(takings: Mapping[Taking | None, int]) -> tuple[str, float]:
    """Return the program that took the most blocks, and when it took some last."""
    blocks: Counter[str] = Counter()
    last: dict[str, float] = {}
    for taking, count in takings.items():
        assert taking is not None
        blocks[taking.program] += count
        last[taking.program] = max(last.get(taking.program, 0.0), taking.at)
    program = max(blocks, key=blocks.__getitem__)
    return program, last[program]
