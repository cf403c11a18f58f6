"""The windows of a run under refusals (429): additive increase, multiplicative decrease. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Refusals within this time have one cause: calls that were sent together.
_TOGETHER_S: Final = 1.0


@dataclass(slots=True)
class _Size:
    most: int
    now: int
    answers: int = 0
    shrunk_s: float = float("-inf")


class Pace:
    """Sizes of windows. A refusal halves a window; each full window of answers adds one call, up to
    the first size.
    """

    def __init__(self, windows: Mapping[str, int]) -> None:
        self._sizes = {name: _Size(size, size) for name, size in windows.items()}

    def refused(self, window: str, now_s: float) -> int | None:
        """A call was refused. Returns the new size of its window, None if it stays."""
        size = self._sizes[window]
        if size.now == 1 or now_s - size.shrunk_s < _TOGETHER_S:
            return None
        size.now, size.answers, size.shrunk_s = size.now // 2, 0, now_s
        return size.now

    def answered(self, window: str) -> int | None:
        """A call was answered. Returns the new size of its window, None if it stays."""
        size = self._sizes[window]
        size.answers += 1
        if size.now == size.most or size.answers < size.now:
            return None
        size.now, size.answers = size.now + 1, 0
        return size.now
