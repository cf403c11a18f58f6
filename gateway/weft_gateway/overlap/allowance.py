"""How much of one stream may be kept at a time."""

from __future__ import annotations

from typing import Final

# A megabyte of unfinished arguments is no tool call, and a stream's share of memory is bounded.
MAX_KEPT_CHARS: Final = 1 << 20
# Calls and texts of one answer that are followed; the widest fan-out seen is 21 (Sutradhara 3.2).
MAX_FOLLOWED: Final = 1024


class Allowance:
    """The characters that the unfinished calls of one stream may keep together."""

    __slots__ = ("_left",)

    def __init__(self, chars: int = MAX_KEPT_CHARS) -> None:
        self._left = chars

    def take(self, chars: int) -> bool:
        """Whether `chars` more may be kept. If False is returned, nothing has changed."""
        if chars > self._left:
            return False
        self._left -= chars
        return True

    def give_back(self, chars: int) -> None:
        """`chars` that were taken are no longer kept."""
        self._left += chars
