"""Cells of a study and their measured values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, floor, isnan, log, log10, nan
from typing import Any

from weft_bench.stats import half_width, mean

Setting = str | int | float | bool
Settings = tuple[tuple[str, Setting], ...]
# Figures of one measurement by name.
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: its settings, sorted by name, and the seed of its random streams."""

    settings: Settings
    seed: int

    def __getitem__(self, name: str) -> Setting:
        """Return a setting. Raises KeyError."""
        return dict(self.settings)[name]


def cells(seeds: int, **settings: Setting) -> list[Cell]:
    """Return one cell for each of `seeds` seeds, all with the same settings."""
    return [Cell(_settings(settings), seed) for seed in range(seeds)]


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate over seeds with its 95% confidence interval.

    The interval equals the middle if nothing varies or only one seed is known. middle: nan without
    values.
    """

    middle: float
    low: float
    high: float

    def above(self, value: float) -> bool:
        """Return whether the whole interval is above a value."""
        return self.low > value

    def below(self, value: float) -> bool:
        """Return whether the whole interval is below a value."""
        return self.high < value

    def __str__(self) -> str:
        """Return text such as 1.16 (0.92 to 1.46).

        The middle has three digits and at most five decimals. The ends have as many decimals, and
        more if an end would be shown as zero. The ends are omitted if they read like the middle. A
        dash stands for nan.
        """
        if isnan(self.middle):
            return "-"
        decimals = _decimals(self.middle)
        shown = f"{self.middle:,.{decimals}f}"
        ends = [f"{end:,.{max(decimals, _decimals(end, 1))}f}" for end in (self.low, self.high)]
        return shown if ends == [shown, shown] else f"{shown} ({' to '.join(ends)})"


@dataclass(frozen=True, slots=True)
class Mean(Estimate):
    """An arithmetic mean with a symmetric interval. least, most: over the seeds."""

    least: float = nan
    most: float = nan

    @property
    def half_width(self) -> float:
        """Return half the width of the interval."""
        return (self.high - self.low) / 2

    @property
    def vain(self) -> bool:
        """Return whether the interval reaches below zero although no seed's figure does.

        Such an interval says nothing about a figure that cannot be negative.
        """
        return self.low < 0 <= self.least

    def __str__(self) -> str:
        """Return text such as 1.23 ± 0.04, with equal decimals.

        If the interval is vain, the least and greatest seed follow: 122 [46 to 220].
        """
        if isnan(self.middle) or self.low == self.high:
            return Estimate.__str__(self)
        decimals = _decimals(self.middle)
        shown = f"{self.middle:,.{decimals}f}"
        if self.vain:
            return f"{shown} [{self.least:,.{decimals}f} to {self.most:,.{decimals}f}]"
        return f"{shown} ± {self.half_width:,.{decimals}f}"


def _decimals(value: float, digits: int = 3) -> int:
    """Return the number of decimals, at most five, that shows these digits of a number."""
    size = abs(value)
    return min(5, max(0, digits - 1 - floor(log10(size)))) if size else digits


def estimate(values: Sequence[float]) -> Mean:
    """Return the mean of these values, one a seed, with an interval by Student's t."""
    if not values:
        return Mean(nan, nan, nan)
    middle, half = mean(values), half_width(values)
    return Mean(middle, middle - half, middle + half, min(values), max(values))


def geometric(logs: Sequence[float]) -> Estimate:
    """Return the geometric mean of figures with these logarithms, one a seed.

    Student's t applies to the logarithms, so that a ratio of 2 and one of 1/2 are equally far from
    1. nan without values.
    """
    of = estimate(logs)
    return Estimate(exp(of.middle), exp(of.low), exp(of.high))


class Measured:
    """Measured values by cell, in the order of the experiment's cells."""

    def __init__(self, values: Mapping[Cell, Values]) -> None:
        self.values = values

    def __bool__(self) -> bool:
        """Return whether anything was measured."""
        return bool(self.values)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the cells for JSON."""
        return [
            {"settings": dict(cell.settings), "seed": cell.seed, "values": dict(values)}
            for cell, values in self.values.items()
        ]

    def where(self, **settings: object) -> Measured:
        """Return the cells with these settings."""
        wanted = settings.items()
        return Measured(
            {c: v for c, v in self.values.items() if wanted <= dict(c.settings).items()}
        )

    def levels(self, name: str) -> list[Setting]:
        """Return the distinct values of a setting, in the order of the cells."""
        found = (dict(cell.settings).get(name) for cell in self.values)
        return list(dict.fromkeys(level for level in found if level is not None))

    def only(self, name: str) -> Setting:
        """Return the only value of a setting in these cells. Raises ValueError for several."""
        (level,) = self.levels(name)
        return level

    def series(self, figure: str) -> dict[int, float]:
        """Return a figure by seed.

        Raises ValueError if the cells differ in more than the seed, because a mean over different
        settings has no meaning.
        """
        if len({cell.settings for cell in self.values}) > 1:
            raise ValueError(f"{figure}: several settings are selected")
        return {
            cell.seed: values[figure] for cell, values in self.values.items() if figure in values
        }

    def estimate(self, figure: str) -> Mean:
        """Return a figure's mean over seeds."""
        return estimate(list(self.series(figure).values()))

    def ratio(self, figure: str, baseline: Measured) -> Estimate:
        """Return the geometric mean of a figure over the baseline's, seed by seed.

        Both played the same programs. Seeds that only one of them has, or with a 0, are left out.
        """
        ours, theirs = self.series(figure), baseline.series(figure)
        logs = [
            log(ours[seed] / theirs[seed])
            for seed in ours
            if seed in theirs and ours[seed] > 0 and theirs[seed] > 0
        ]
        return geometric(logs)


def _settings(settings: Mapping[str, Setting]) -> Settings:
    return tuple(sorted(settings.items()))


def measured(found: Iterable[tuple[Cell, Values]]) -> Measured:
    """Return the measured values from pairs."""
    return Measured(dict(found))


def each(found: Measured, *settings: str) -> Iterator[Measured]:
    """Yield the cells of each measured combination of these settings."""
    if not settings:
        yield found
        return
    for level in found.levels(settings[0]):
        yield from each(found.where(**{settings[0]: level}), *settings[1:])
