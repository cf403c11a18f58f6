"""Definition of an experiment and of its tables, plots and scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Final, Literal

from weft_bench.studies.cells import Cell, Estimate, Measured, Values
from weft_bench.studies.simulating import OURS

Outcome = Literal["won", "lost", "open"]
# Bound of a ratio: measured, a lower bound, an upper bound, or unknown.
Bound = Literal["", "≥", "≤", "?"]
_UNKNOWN: Final = Estimate(nan, nan, nan)


@dataclass(frozen=True, slots=True)
class Score:
    """One comparison.

    name: its subject. shown: its figure as text. outcome: the conclusion of the whole interval, or
    open. ratio: ours over the other's. less: whether less than 1 is better. bound: set if the ratio
    is not a value.
    """

    name: str
    shown: str
    outcome: Outcome
    ratio: Estimate = _UNKNOWN
    less: bool = True
    bound: Bound = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """The summary of an experiment.

    what: the compared figure and the opponent. published: the paper's result in a few words, or
    empty. rival: whether the opponent can be built; an unreachable bound is no rival, and missing
    it is no loss.
    """

    what: str
    scores: Sequence[Score]
    published: str = ""
    rival: bool = True


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of this project. what: the figure. found: as measured. limit: to reach. less: whether
    the figure should be at most the limit, or at least.
    """

    what: str
    found: Estimate
    limit: float
    less: bool = True

    @property
    def met(self) -> bool:
        """Whether the middle reaches the limit. A figure that is not known does not."""
        middle = self.found.middle
        return middle <= self.limit if self.less else middle >= self.limit

    def __str__(self) -> str:
        """Return text that begins with `met: ` or `missed: `."""
        bound = "at most" if self.less else "at least"
        text = f"{self.what} {self.found}, goal {bound} {self.limit:g}"
        if not self.met:
            return f"missed: {text}"
        far = self.found.high > self.limit if self.less else self.found.low < self.limit
        return f"met: {text}" + (", by the mean and not by the interval" if far else "")


@dataclass(frozen=True, slots=True)
class Claim:
    """A paper's claim, and the same comparison on this project's implementation of its system.

    subject: the figure and the paper's system. rival: the other system. ratio: without a name.
    published: as text. target: the published ratio, nan if the paper has no number. hit_rates: of
    both systems by name, to explain differences.
    """

    subject: str
    rival: str
    ratio: Score
    published: str
    target: float = nan
    hit_rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def score(self) -> Score:
        """Return the comparison with its name."""
        return replace(self.ratio, name=f"{self.subject} over {self.rival}")


def less(name: str, ratio: Estimate, shown: str = "") -> Score:
    """Score a ratio for which less than 1 is better. shown: text instead of the ratio's."""
    return Score(name, shown or str(ratio), _outcome(ratio.below(1), ratio.above(1)), ratio)


def more(name: str, ratio: Estimate) -> Score:
    """Score a ratio for which more than 1 is better."""
    outcome = _outcome(ratio.above(1), ratio.below(1))
    return Score(name, str(ratio), outcome, ratio, less=False)


def _outcome(won: bool, lost: bool) -> Outcome:
    return "won" if won else "lost" if lost else "open"


Kind = Literal["simulated", "cpu", "gpu"]

# Code that determines the outcome of a simulation. A change in it makes measured cells stale.
SIMULATION: Final = (
    "engine_patches",
    "gateway/weft_gateway/model",
    "gateway/weft_gateway/policies/route",
    "gateway/weft_gateway/programs/memory.py",
    "gateway/weft_gateway/programs/rules.py",
    "loadgen/weft_bench/costs",
    "loadgen/weft_bench/stats.py",
    "loadgen/weft_bench/studies/reuse.py",
    "loadgen/weft_bench/studies/simulating.py",
    "loadgen/weft_bench/virtual",
    "loadgen/weft_bench/workloads",
)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under columns. The first `labels` columns are text, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot: estimates over x."""

    label: str
    x: Sequence[float]
    y: Sequence[Estimate]


@dataclass(frozen=True, slots=True)
class Plot:
    """Panels in a row, each with a title and its lines.

    x, y: labels of the axes. bars: whether to draw the intervals. file: plots with the same value
    are drawn into one file, whose name ends with it.
    """

    x: str
    y: str
    panels: Sequence[tuple[str, Sequence[Series]]]
    log_y: bool = False
    bars: bool = True
    file: str = ""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Panels in a row, each with a title and ratios with a note by their places (x, y).

    Less than 1 is better. x, y: labels of the axes. shown: label of the ratios. file: as in `Plot`.
    """

    x: str
    y: str
    shown: str
    panels: Sequence[tuple[str, Mapping[tuple[float, float], tuple[Estimate, str]]]]
    file: str = ""


Drawing = Plot | HeatMap


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment.

    name: its name on the command line, valid in a file name. source: paper and figure, or the
    reason for the experiment. published: the paper's result in a sentence, or empty. kind: origin
    of the figures; a table never mixes kinds. cells: what to measure; the argument selects the
    quick form, at most a minute on two cores. measure: returns one cell's figures, in its own
    process; a module-level function. tables, plots: views of the figures. notes: what readers must
    know. headline: the result in one line of the page's summary. code: files and folders, relative
    to the project's root, that determine the outcome. exclusive: measured in real time, so that no
    other cell may run at the same time. claims: of a paper about its own system. order: of Weft's
    engines. first_seed: `measure` adds it to the seed of a cell.
    """

    name: str
    title: str
    source: str
    published: str
    cells: Callable[[bool], Sequence[Cell]]
    measure: Callable[[Cell], Values]
    tables: Callable[[Measured], Sequence[Table]]
    plots: Callable[[Measured], Sequence[Drawing]] = field(default=lambda found: ())
    notes: Sequence[str] = ()
    headline: Callable[[Measured], Headline] = field(default=lambda found: Headline("", ()))
    claims: Callable[[Measured], Sequence[Claim]] = field(default=lambda found: ())
    kind: Kind = "simulated"
    code: Sequence[str] = SIMULATION
    exclusive: bool = False
    order: str = OURS
    first_seed: int = 0
    goals: Callable[[Measured], Sequence[Goal]] = field(default=lambda found: ())
