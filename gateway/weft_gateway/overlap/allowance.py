"""Limits the characters of one stream that are kept at a time."""

from __future__ import annotations

from typing import Final

# A megabyte of unfinished arguments is no tool call. The limit bounds a stream's memory.
MAX_KEPT_CHARS: Final = 1 << 20
# Maximum calls and texts of one answer; the widest observed fan-out is 21 (Sutradhara 3.2).
MAX_FOLLOWED: Final = 1024


class Allowance:
    """The number of characters that the unfinished calls of one stream may keep together."""

    __slots__ = ("_left",)

    def __init__(self, chars: int = MAX_KEPT_CHARS) -> None:
        self._left = chars

    def take(self, chars: int) -> bool:
        """Take `chars` characters. Returns False, without a change, if fewer are left."""
        if chars > self._left:
            return False
        self._left -= chars
        return True

    def give_back(self, chars: int) -> None:
        """Return `chars` characters that are no longer kept."""
        self._left += chars
