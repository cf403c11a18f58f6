"""All comparisons of the results page, and their verdicts after Holm's correction. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Final, Literal

from weft_bench.studies.experiment import Score
from weft_bench.studies.significance import LEVEL, holm

BETTER: Final = "better"
WORSE: Final = "worse"
OPEN: Final = "no difference shown"
BOUND: Final = "a bound only"
SINGLE: Final = "one seed"
Verdict = Literal["better", "worse", "no difference shown", "a bound only", "one seed"]
# Seeds that orders and constants were tuned with.
TUNING: Final = range(100)
# A system that is also played without program ends counts once.
_AGAIN: Final = "without program ends"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison.

    source: name of the page with its tables. title: of its group. what: the compared figure and the
    opponent. seeds: of the programs. rival: whether the opponent can be built. claim: whether it is
    a paper's claim about its own system, without Weft. goal: the ratio to reach, or None.
    """

    source: str
    title: str
    kind: str
    what: str
    score: Score
    seeds: tuple[int, ...]
    rival: bool = True
    claim: bool = False
    goal: float | None = None
    verdict: Verdict = OPEN

    @property
    def fresh(self) -> bool:
        """Whether no seed was used for tuning."""
        return not any(seed in TUNING for seed in self.seeds)

    @property
    def counts(self) -> bool:
        """Whether it is one of Weft's comparisons with a rival."""
        return self.rival and not self.claim and not self.score.name.endswith(_AGAIN)

    @property
    def known(self) -> bool:
        """Whether it has a figure."""
        return not isnan(self.score.ratio.middle) and self.score.bound != "?"

    @property
    def single(self) -> bool:
        """Whether it is a value without an interval, because only one seed was measured."""
        return isnan(self.score.ratio.p) and not self.score.bound

    @property
    def tested(self) -> bool:
        """Whether it is a member of the family of Holm's correction."""
        return self.known and not self.score.bound and not self.single


def judged(found: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with their verdicts.

    All values with a p-value are one family for Holm's correction. A bound is not a value, and one
    seed has no p-value.
    """
    family = [place for place, one in enumerate(found) if one.tested]
    adjusted = holm([found[place].score.ratio.p for place in family])
    below = dict(zip(family, adjusted, strict=True))
    return [
        replace(one, verdict=_verdict(one, below.get(place, 1.0)))
        for place, one in enumerate(found)
    ]


def family_size(found: Sequence[Comparison]) -> int:
    """Return the number of comparisons that the correction is for."""
    return sum(one.tested for one in found)


def _verdict(one: Comparison, p: float) -> Verdict:
    if one.score.bound:
        return BOUND
    if one.single:
        return SINGLE
    if p > LEVEL:
        return OPEN
    return BETTER if (one.score.ratio.middle < 1) is one.score.less else WORSE


def suspected(one: Comparison) -> bool:
    """Return whether it is worse by its own 95% interval, but not after the correction."""
    return one.verdict == OPEN and one.score.outcome == "lost"
