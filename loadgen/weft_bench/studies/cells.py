"""Cells of an experiment and what was measured in them. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, floor, isnan, log, log10, nan
from typing import Any

from weft_bench.stats import half_width, mean

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
    return [Cell(_settings(settings), seed) for seed in range(seeds)]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A middle over seeds, and from where to where its 95% confidence interval reaches: the middle
    itself where nothing varies or only one seed is known. middle: nan of nothing."""

    middle: float
    low: float
    high: float

    def above(self, value: float) -> bool:
        """Whether all of the interval is."""
        return self.low > value

    def below(self, value: float) -> bool:
        """Whether all of the interval is."""
        return self.high < value

    def ends(self) -> tuple[float, float]:
        """From where to where a plot draws it."""
        return self.low, self.high

    def __str__(self) -> str:
        """As 1.16 (0.92 to 1.46): three digits of the middle, at most five decimals, and as many
        decimals of the ends, more where an end would be shown as zero. Without ends where they
        would be shown as the middle is; a dash for no number."""
        if isnan(self.middle):
            return "-"
        decimals = _decimals(self.middle)
        shown = f"{self.middle:,.{decimals}f}"
        ends = [f"{end:,.{max(decimals, _decimals(end, 1))}f}" for end in (self.low, self.high)]
        return shown if ends == [shown, shown] else f"{shown} ({' to '.join(ends)})"


@dataclass(frozen=True, slots=True)
class Mean(Estimate):
    """An arithmetic mean, whose interval reaches as far to both sides. least, most: of the seeds'
    figures."""

    least: float = nan
    most: float = nan

    @property
    def half_width(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    @property
    def vain(self) -> bool:
        """Whether the interval reaches below zero though no seed's figure does: so wide an interval
        says nothing of what cannot be negative."""
        return self.low < 0 <= self.least

    def ends(self) -> tuple[float, float]:
        """Those of the interval; where it is vain, of the seeds' figures."""
        return (self.least, self.most) if self.vain else (self.low, self.high)

    def __str__(self) -> str:
        """As 1.23 ± 0.04, with as many decimals on both sides; where the interval is vain, with the
        least and the greatest seed, as 122 [46 to 220]."""
        if isnan(self.middle) or self.low == self.high:
            return Estimate.__str__(self)
        decimals = _decimals(self.middle)
        shown = f"{self.middle:,.{decimals}f}"
        if self.vain:
            return f"{shown} [{self.least:,.{decimals}f} to {self.most:,.{decimals}f}]"
        return f"{shown} ± {self.half_width:,.{decimals}f}"


def _decimals(value: float, digits: int = 3) -> int:
    """So many that these digits of a number are shown, five at most."""
    size = abs(value)
    return min(5, max(0, digits - 1 - floor(log10(size)))) if size else digits


def estimate(values: Sequence[float]) -> Mean:
    """The mean of these values, one a seed, with Student's t."""
    if not values:
        return Mean(nan, nan, nan)
    middle, half = mean(values), half_width(values)
    return Mean(middle, middle - half, middle + half, min(values), max(values))


def geometric(logs: Sequence[float]) -> Estimate:
    """The geometric mean of what has these logarithms, one a seed, with Student's t on them: what
    is twice and what is half as much stand alike far from 1. nan of nothing."""
    of = estimate(logs)
    return Estimate(exp(of.middle), exp(of.low), exp(of.high))


class Measured:
    """What was measured, cell by cell, in the order of the experiment's cells."""

    def __init__(self, values: Mapping[Cell, Values]) -> None:
        self.values = values

    def __bool__(self) -> bool:
        """Whether anything was measured."""
        return bool(self.values)

    @classmethod
    def of_json(cls, cells: Iterable[Mapping[str, Any]]) -> Measured:
        """What `to_json` has made."""
        return cls({Cell(_settings(one["settings"]), one["seed"]): one["values"] for one in cells})

    def to_json(self) -> list[dict[str, Any]]:
        """The cells as JSON."""
        return [
            {"settings": dict(cell.settings), "seed": cell.seed, "values": dict(values)}
            for cell, values in self.values.items()
        ]

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

    def only(self, name: str) -> Setting:
        """The value that a setting has in all these cells. ValueError where there are several."""
        (level,) = self.levels(name)
        return level

    def named(self, name: str, kinds: Mapping[str, Mapping[str, Setting]]) -> Measured:
        """The cells under one more setting, `name`, in place of all those that tell kinds apart.

        kinds: the name of each kind to the settings that it has; it lacks those of the others.
        """
        told = {setting for kind in kinds.values() for setting in kind}
        return Measured(
            {
                Cell(_settings({**_without(cell, told), name: kind}), cell.seed): values
                for kind, settings in kinds.items()
                for cell, values in self.like(settings, told).values.items()
            }
        )

    def series(self, figure: str) -> dict[int, float]:
        """A figure by seed. ValueError where these cells differ by more than the seed, since a
        mean over different settings has no meaning."""
        if len({cell.settings for cell in self.values}) > 1:
            raise ValueError(f"{figure}: several settings are selected")
        return {
            cell.seed: values[figure] for cell, values in self.values.items() if figure in values
        }

    def estimate(self, figure: str) -> Mean:
        """A figure's mean over seeds."""
        return estimate(list(self.series(figure).values()))

    def ratio(self, figure: str, baseline: Measured) -> Estimate:
        """A figure over the baseline's, seed by seed, since both played the same programs: the
        geometric mean. Seeds that only one of them has, or where either is 0, are left out."""
        ours, theirs = self.series(figure), baseline.series(figure)
        logs = [
            log(ours[seed] / theirs[seed])
            for seed in ours
            if seed in theirs and ours[seed] > 0 and theirs[seed] > 0
        ]
        return geometric(logs)


def _settings(settings: Mapping[str, Setting]) -> Settings:
    return tuple(sorted(settings.items()))


def _without(cell: Cell, names: Container[str]) -> dict[str, Setting]:
    return {name: value for name, value in cell.settings if name not in names}


def measured(found: Iterable[tuple[Cell, Values]]) -> Measured:
    """What was measured, from pairs."""
    return Measured(dict(found))
