"""Steps that are scheduled and have not ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping


class StepsInFlight:
    """When each step began, and the prompt tokens that it computes, with their pairs of attention.
    last_end: end of the last step that has run, seconds."""

    def __init__(self) -> None:
        self.last_end = 0.0
        self._begun: dict[int, tuple[float, Mapping[str, int], int]] = {}

    def __len__(self) -> int:
        return len(self._begun)

    def begin(self, output: object, prefill: Mapping[str, int], pairs: int, now: float) -> None:
        """A step was scheduled. output: identifies it. prefill: prompt tokens by sequence."""
        self._begun[id(output)] = now, prefill, pairs

    def end(self, output: object, now: float) -> tuple[float, Mapping[str, int], int]:
        """A step has run. Returns its duration in seconds, its prompt tokens and their pairs.

        With async scheduling, steps overlap: a step begins when the previous one has ended.
        """
        begun, prefill, pairs = self._begun.pop(id(output), (now, {}, 0))
        duration_s = max(0.0, now - max(begun, self.last_end))
        self.last_end = now
        return duration_s, prefill, pairs
