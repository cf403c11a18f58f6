"""What an experiment is, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Final, Literal

from weft_bench.studies.cells import Cell, Estimate, Measured, Values

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


Kind = Literal["simulated", "cpu", "gpu"]

# What decides the outcome of a simulation: a change in it makes measured cells stale.
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
    """Rows of text under columns; the first `labels` columns are words, the others numbers."""

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
    """Panels beside each other, each a title and its lines. x, y: labels of the axes."""

    x: str
    y: str
    panels: Sequence[tuple[str, Sequence[Series]]]
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment.

    name: what it is called on the command line, in words of a file name. source: paper and figure,
    or what asks for it. published: what the paper prints, in a sentence; empty where nobody has
    published one. kind: what the figures come from; kinds are never shown in one table. cells: what
    to measure; the argument asks for the quick form, at most a minute on two cores. measure: one
    cell's figures, in a process that plays nothing else; a function of a module's top level.
    tables, plots: views of the figures. notes: what a reader of them has to know. headline: the
    result in one line of the page's summary.
    code: files and folders, from the project's root, that decide the outcome. exclusive: measured
    in real time, so that nothing else may run beside a cell.
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
