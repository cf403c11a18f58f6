"""Definition of an experiment and of its tables, plots and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Final, Literal

from weft_bench.studies.cells import Cell, Estimate, Measured, Values

Outcome = Literal["won", "lost", "open"]


@dataclass(frozen=True, slots=True)
class Score:
    """One comparison.

    name: its subject. shown: its figure as text. outcome: the conclusion of the whole interval, or
    open.
    """

    name: str
    shown: str
    outcome: Outcome


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


def less(name: str, ratio: Estimate) -> Score:
    """Score a ratio for which less than 1 is better."""
    return Score(name, str(ratio), _outcome(ratio.below(1), ratio.above(1)))


def more(name: str, ratio: Estimate, than: float = 1.0, unit: str = "") -> Score:
    """Score a figure for which more than `than` is better."""
    shown = str(ratio) if isnan(ratio.middle) or not unit else _with(ratio, unit)
    return Score(name, shown, _outcome(ratio.above(than), ratio.below(than)))


def _with(ratio: Estimate, unit: str) -> str:
    middle, _, ends = str(ratio).partition(" ")
    return f"{middle}{unit} {ends}".strip()


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
    """Panels in a row, each with a title and its lines. x, y: labels of the axes."""

    x: str
    y: str
    panels: Sequence[tuple[str, Sequence[Series]]]
    log_y: bool = False


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
    other cell may run at the same time.
    """

    name: str
    title: str
    source: str
    published: str
    cells: Callable[[bool], Sequence[Cell]]
    measure: Callable[[Cell], Values]
    tables: Callable[[Measured], Sequence[Table]]
    plots: Callable[[Measured], Sequence[Plot]] = field(default=lambda found: ())
    notes: Sequence[str] = ()
    headline: Callable[[Measured], Headline] = field(default=lambda found: Headline("", ()))
    kind: Kind = "simulated"
    code: Sequence[str] = SIMULATION
    exclusive: bool = False
