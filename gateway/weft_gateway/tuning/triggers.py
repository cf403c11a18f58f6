"""The rules that decide when to tune, and when a change made things worse. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft_gateway.model.options import Tuning
from weft_gateway.tuning.shapes import UnitShape
from weft_gateway.tuning.window import Summary, p_greater, summary

# HexGen-Flow, section 4.3.
_SIGNIFICANT: Final = 0.01
# A change is taken back on weaker evidence than it is made: the values before it are known.
_WORSE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Rule:
    """When to tune. window_s: least length of a window; it is extended until `least` programs have
    ended. latency: whether windows are compared by latency, otherwise by slowdown. gain: the least
    predicted improvement of a change, as a fraction. at_first: also after the first window.
    """

    name: str
    least: int
    latency: bool
    gain: float
    at_first: bool
    window_s: float = 100.0

    def values(self, units: Sequence[UnitShape]) -> list[float]:
        """Return the value of each unit. Units of unknown slowdown are left out."""
        if self.latency:
            return [unit.latency_s for unit in units]
        return [unit.slowdown for unit in units if unit.slowdown]

    def summary(self, units: Sequence[UnitShape]) -> Summary:
        """Return the summary of a window."""
        return summary(self.values(units))

    def triggers(self, new: Summary, old: Summary) -> tuple[bool, float]:
        """Return whether the new window is significantly worse than the one before, and p."""
        p = p_greater(new, old)
        return p < _SIGNIFICANT and self.complete(new) and self.complete(old), p

    def worse(self, after: Summary, before: Summary) -> bool:
        """Whether the window after a change is worse than the one that caused it."""
        return p_greater(after, before) < _WORSE

    def complete(self, window: Summary) -> bool:
        """Whether a window has enough values."""
        return window.count >= self.least


RULES: Final = {
    # HexGen-Flow, section 4.3: any improvement is taken.
    Tuning.PAPER: Rule("paper", 5, True, 0.0, False),
    # P95 of fewer programs is that of one or two of them. Slowdown does not change with the mix of
    # programs.
    Tuning.SLOWDOWN: Rule("slowdown", 30, False, 0.05, True),
}
