"""Fits a cost model to measured durations. Pure.

Each measurement is the time of several steps together, a row of what they computed. The model is
the linear one (`CostModel` without `weights_s`): least squares of relative errors, so that short
steps count as much as long ones, over coefficients that are not negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft_bench.costs.model import CostModel
from weft_bench.stats import mean

_TERMS: Final = ("step_s", "prefill_token_s", "decode_sequence_s", "context_token_s")


@dataclass(frozen=True, slots=True)
class Measured:
    """So many steps computed so many prompt tokens and decoded so many sequences, with so many
    tokens of context read, all steps together, in so many seconds."""

    steps: float
    prefill: float
    decode: float
    context: float
    seconds: float

    @property
    def row(self) -> tuple[float, ...]:
        """What the model's terms are multiplied with."""
        return (self.steps, self.prefill, self.decode, self.context)


def fit_costs(measured: Sequence[Measured]) -> CostModel:
    """The model with the least relative error. ValueError where the measurements do not tell the
    terms apart, or a duration is not positive."""
    import numpy
    from scipy.optimize import nnls

    if any(not m.seconds > 0 for m in measured):
        raise ValueError("a measured duration must be above 0")
    relative = [[value / m.seconds for value in m.row] for m in measured]
    rows = numpy.array(relative).reshape(-1, len(_TERMS))
    # Each column scaled to 1: a step has thousands of tokens.
    scales = abs(rows).max(axis=0, initial=0.0)
    if not scales.all():
        raise ValueError("the measurements do not hold every term")
    if numpy.linalg.matrix_rank(rows / scales) < len(_TERMS):
        raise ValueError("the measurements do not tell the terms apart")
    found, _ = nnls(rows / scales, numpy.ones(len(rows)))
    return CostModel(**dict(zip(_TERMS, map(float, found / scales), strict=True)))


def error(model: CostModel, measured: Sequence[Measured]) -> float:
    """Mean relative error of the model, as a share."""
    return mean([abs(seconds_of(model, m) / m.seconds - 1) for m in measured])


def seconds_of(model: CostModel, measured: Measured) -> float:
    """What the model says of the steps of a measurement."""
    terms: list[float] = [getattr(model, name) for name in _TERMS]
    return sum(a * b for a, b in zip(measured.row, terms, strict=True))
