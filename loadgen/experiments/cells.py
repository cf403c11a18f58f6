"""Cells of an experiment and what was measured in them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, floor, isnan, log, log10

from loadgen.stats import half_width, mean

Setting = str | int | float | bool
Settings = tuple[tuple[str, Setting], ...]
# Figures of one measurement, by name.
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: its settings, sorted by name, and the seed of its random streams."""

    settings: Settings
    seed: int

    def __getitem__(self, name: str) -> Setting:
        """A setting; KeyError."""
        return dict(self.settings)[name]

    def text(self, name: str) -> str:
        """A setting that is a word."""
        return str(self[name])

    def number(self, name: str) -> float:
        """A setting that is a number; ValueError or KeyError."""
        return float(self[name])


def cells(seeds: int, **settings: Setting) -> list[Cell]:
    """The same settings with so many seeds."""
    return [Cell(tuple(sorted(settings.items())), seed) for seed in range(seeds)]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds, and half of its 95% confidence interval (Student's t)."""

    mean: float
    half_width: float

    def __str__(self) -> str:
        """As 1.23 ± 0.04: three digits of the mean, at most five decimals, and as many decimals of
        the half width; a dash for no number."""
        if isnan(self.mean):
            return "-"
        size = abs(self.mean)
        digits = min(5, max(0, 2 - floor(log10(size)))) if size else 3
        shown = f"{self.mean:,.{digits}f}"
        return f"{shown} ± {self.half_width:,.{digits}f}" if self.half_width else shown


def estimate(values: Sequence[float]) -> Estimate:
    """The estimate that these values, one a seed, give."""
    return Estimate(mean(values), half_width(values))


def geometric(logs: Sequence[float]) -> Estimate:
    """The geometric mean of what has these logarithms, and the half width of its interval's upper
    side; nan of nothing."""
    if not logs:
        return Estimate(float("nan"), 0.0)
    middle = exp(mean(logs))
    return Estimate(middle, middle * (exp(half_width(logs)) - 1))


class Measured:
    """What was measured, cell by cell, in the order of the experiment's cells."""

    def __init__(self, values: Mapping[Cell, Values]) -> None:
        self.values = values

    def __bool__(self) -> bool:
        """Whether anything was measured."""
        return bool(self.values)

    def where(self, **settings: Setting) -> Measured:
        """The cells with these settings."""
        wanted = settings.items()
        return Measured(
            {c: v for c, v in self.values.items() if wanted <= dict(c.settings).items()}
        )

    def like(self, settings: Mapping[str, Setting], names: Iterable[str]) -> Measured:
        """The cells that have of these names these settings and no others."""
        absent = set(names) - settings.keys()
        found = self.where(**settings)
        return Measured(
            {c: v for c, v in found.values.items() if not dict(c.settings).keys() & absent}
        )

    def levels(self, name: str) -> list[Setting]:
        """The different values of a setting, in the order in which cells have them."""
        found = (dict(cell.settings).get(name) for cell in self.values)
        return list(dict.fromkeys(level for level in found if level is not None))

    def series(self, figure: str) -> dict[int, float]:
        """A figure by seed. ValueError where these cells differ by more than the seed, so that
        nobody takes a mean over what should be apart."""
        if len({cell.settings for cell in self.values}) > 1:
            raise ValueError(f"{figure}: several settings are selected")
        return {
            cell.seed: values[figure] for cell, values in self.values.items() if figure in values
        }

    def estimate(self, figure: str) -> Estimate:
        """A figure's mean over seeds."""
        return estimate(list(self.series(figure).values()))

    def ratio(self, figure: str, baseline: Measured) -> Estimate:
        """A figure over the baseline's, seed by seed, since both played the same programs: the
        geometric mean, and the half width of its interval's upper side."""
        ours, theirs = self.series(figure), baseline.series(figure)
        logs = [
            log(ours[seed] / theirs[seed])
            for seed in ours
            if seed in theirs and ours[seed] > 0 and theirs[seed] > 0
        ]
        return geometric(logs)


def measured(found: Iterable[tuple[Cell, Values]]) -> Measured:
    """What was measured, from pairs."""
    return Measured(dict(found))
