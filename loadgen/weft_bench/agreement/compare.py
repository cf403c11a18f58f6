"""Statistics of `weft bench fit --agreement`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import variance
from typing import Final

from weft_bench.stats import mean

# Two-sided 95% of a normal distribution.
_95: Final = 1.96


@dataclass(frozen=True, slots=True)
class Delay:
    """Engine seconds that a call takes outside of its steps, on the idle engine: call_s, and
    token_s for each token of its prompt."""

    call_s: float
    token_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Played:
    """One play of a scene, in engine seconds.

    program_s, call_s: means of a program's completion and of a call's time in the engine. hit_rate:
    share of prompt tokens from the cache. moved_blocks: KV blocks to host memory and back. steps,
    busy_s, late_s: of the emulated device; 0 in virtual time.
    """

    program_s: float
    call_s: float
    hit_rate: float
    preemptions: int
    moved_blocks: int
    steps: int = 0
    busy_s: float = 0.0
    late_s: float = 0.0

    @property
    def late_share(self) -> float:
        """`late_s` as a share of `busy_s`."""
        return self.late_s / self.busy_s if self.busy_s else 0.0


@dataclass(frozen=True, slots=True)
class Pair:
    """One order on the same scenes in both. emulated: one play for each seed. virtual: several
    plays for each seed, with different delays."""

    emulated: Sequence[Played]
    virtual: Sequence[Sequence[Played]]

    @property
    def emulated_s(self) -> float:
        """Mean program completion over the seeds, emulated."""
        return mean([one.program_s for one in self.emulated])

    @property
    def virtual_s(self) -> float:
        """Mean program completion over the seeds, in virtual time."""
        return mean([one.program_s for one in self.virtual_all])

    @property
    def virtual_all(self) -> list[Played]:
        """The plays of all seeds in virtual time."""
        return [one for plays in self.virtual for one in plays]

    @property
    def ratio(self) -> float:
        """Emulated over virtual."""
        return self.emulated_s / self.virtual_s

    @property
    def variance(self) -> float:
        """Variance of `emulated_s - virtual_s` that the delays cause, if both are the same
        system."""
        found = [variance([one.program_s for one in plays]) for plays in self.virtual]
        count = min(map(len, self.virtual))
        return sum(found) * (1 + 1 / count) / len(found) ** 2

    @property
    def noise(self) -> float:
        """Half of the 95% interval of `ratio` that the delays cause."""
        return _95 * sqrt(self.variance) / self.virtual_s


Case = Mapping[str, Pair]


def tau(pairs: Case) -> float:
    """Return Kendall's rank correlation of the orders' means: 1 for the same ranking."""
    # Imported here because the import takes a second.
    from scipy.stats import kendalltau

    ours = [pair.emulated_s for pair in pairs.values()]
    return float(kendalltau(ours, [pair.virtual_s for pair in pairs.values()]).statistic)


def reversals(pairs: Case) -> list[str]:
    """Return the pairs of orders that rank the other way round in virtual time.

    Both differences must exceed the 95% interval that the delays cause.
    """
    found = []
    for (a, one), (b, other) in combinations(pairs.items(), 2):
        noise = _95 * sqrt(one.variance + other.variance)
        emulated = one.emulated_s - other.emulated_s
        virtual = one.virtual_s - other.virtual_s
        if emulated * virtual < 0 and min(abs(emulated), abs(virtual)) > noise:
            found.append(f"{a} and {b}")
    return found


def apart(values: Sequence[float]) -> float:
    """Return the difference of the largest and the smallest value, as a share of the smallest."""
    return max(values) / min(values) - 1
