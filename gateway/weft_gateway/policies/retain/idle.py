"""After which silence a program is taken for ended, learned from programs of its kind. Pure.

Agents do not say when they are done. How long they are silent between two calls (a tool runs, a
person thinks) differs by orders of magnitude between kinds of programs and little within one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import frexp
from typing import Final

# Silences up to 1 s, 2 s, 4 s and so on to 36 hours.
BUCKETS: Final = 18


def bucket(gap_s: float) -> int:
    """The bucket of a silence of `gap_s` seconds: bucket n holds those up to 2**n seconds."""
    if gap_s <= 1.0:
        return 0
    mantissa, exponent = frexp(gap_s)
    # A power of two is the upper bound of its bucket.
    return min(exponent - (mantissa == 0.5), BUCKETS - 1)


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """`margin` times the silence that a share of `quantile` of all observed ones does not exceed,
    at least `shortest_s` and at most `longest_s` seconds. `longest_s` while fewer than `enough`
    silences have been observed.

    The margin makes up for what cannot be observed: a silence that was longer than the time
    allowed.
    """

    shortest_s: float
    longest_s: float
    margin: float = 4.0
    quantile: float = 0.99
    enough: int = 32

    def idle_s(self, gaps: Sequence[int]) -> float:
        """The time after which a silent program is taken for ended, seconds. gaps: observed
        silences, counted in BUCKETS buckets."""
        total = sum(gaps)
        if total < self.enough:
            return self.longest_s
        wanted = self.quantile * total
        index = next(n for n, seen in enumerate(accumulate(gaps)) if seen >= wanted)
        return max(min(self.margin * 2.0**index, self.longest_s), self.shortest_s)
