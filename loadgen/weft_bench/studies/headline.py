"""What an experiment comes to: ours beside others in one line, wins and losses alike. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal

from weft_bench.studies.cells import Estimate

Outcome = Literal["won", "lost", "open"]


@dataclass(frozen=True, slots=True)
class Score:
    """One comparison. name: of what. shown: its figure. outcome: what all of its interval tells;
    open where it tells nothing."""

    name: str
    shown: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Headline:
    """what: the figure that is compared, and with whose. published: the paper's, in a few words;
    empty where there is none. rival: whether that is one; what nobody can build is none, and not
    to reach it no loss."""

    what: str
    scores: Sequence[Score]
    published: str = ""
    rival: bool = True

    def count(self, outcome: Outcome) -> int:
        """How many comparisons came out so."""
        return sum(score.outcome == outcome for score in self.scores)


def less(name: str, ratio: Estimate) -> Score:
    """A ratio of which less than 1 is better for ours."""
    return Score(name, str(ratio), _outcome(ratio.below(1), ratio.above(1)))


def more(name: str, ratio: Estimate, than: float = 1.0, unit: str = "") -> Score:
    """A figure of which more than so much is better for ours."""
    shown = str(ratio) if isnan(ratio.middle) or not unit else _with(ratio, unit)
    return Score(name, shown, _outcome(ratio.above(than), ratio.below(than)))


def _with(ratio: Estimate, unit: str) -> str:
    middle, _, ends = str(ratio).partition(" ")
    return f"{middle}{unit} {ends}".strip()


def _outcome(won: bool, lost: bool) -> Outcome:
    return "won" if won else "lost" if lost else "open"
