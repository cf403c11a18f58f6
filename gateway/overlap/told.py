"""Tags that a client has told of its program ahead of the calls that they are for. No I/O, no
clock; bounded, and gone after a while: what was told of an old prompt is wrong of a new one."""

from __future__ import annotations

from collections import OrderedDict

from gateway.model import ProgramKey
from gateway.model.hint import OwnTag


class ToldTags:
    """The last tags told, by program. limit: programs that are remembered."""

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._kept: OrderedDict[ProgramKey, tuple[float, tuple[OwnTag, ...]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def tell(self, key: ProgramKey, tags: tuple[OwnTag, ...], until_s: float) -> None:
        """Remember them in the place of those told before; none at all forgets those."""
        self._kept.pop(key, None)
        if tags:
            self._kept[key] = until_s, tags
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def of(self, key: ProgramKey, now_s: float) -> tuple[OwnTag, ...]:
        """What holds for a call of the program now."""
        if not self._kept:
            return ()
        until_s, tags = self._kept.get(key, (0.0, ()))
        if tags and until_s <= now_s:
            del self._kept[key]
            return ()
        return tags
