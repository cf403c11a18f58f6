"""Fits a cost model to measured durations. Pure.

A measurement is the total time of several steps and one row of the work in them. The model is
linear (`CostModel` without `weights_s`). The fit minimizes squared relative errors, so that short
steps count as much as long ones, over non-negative coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft_engine.emulated.cost_model import CostModel

from weft_bench.stats import mean

# The coefficients, in the order of `Measured.row`.
TERMS: Final = (
    "step_s", "prefill_token_s", "decode_sequence_s", "context_token_s", "prefill_pair_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """Totals over several steps.

    prefill: computed prompt tokens. decode: decoded sequences. context: tokens of context read.
    pairs: see `attention_pairs`. seconds: duration.
    """

    steps: float
    prefill: float
    decode: float
    context: float
    pairs: float
    seconds: float

    @property
    def row(self) -> tuple[float, ...]:
        """The factors of the model's terms."""
        return (self.steps, self.prefill, self.decode, self.context, self.pairs)


def fit_costs(measured: Sequence[Measured]) -> CostModel:
    """Return the model with the least relative error.

    Raises ValueError if the measurements do not separate the terms, or a duration is not positive.
    """
    import numpy

    if any(not m.seconds > 0 for m in measured):
        raise ValueError("a measured duration must be above 0")
    relative = [[value / m.seconds for value in m.row] for m in measured]
    rows = numpy.array(relative).reshape(-1, len(TERMS))
    scales = abs(rows).max(axis=0, initial=0.0)
    if not scales.all():
        raise ValueError("the measurements do not cover every term")
    if numpy.linalg.matrix_rank(rows / scales) < len(TERMS):
        raise ValueError("the measurements do not separate the terms")
    return CostModel(**dict(zip(TERMS, nonnegative(rows, numpy.ones(len(rows))), strict=True)))


def nonnegative(rows: Any, values: Any) -> list[float]:
    """Return the coefficients of the columns with the least squared error, none below 0."""
    import numpy
    from scipy.optimize import nnls

    rows = numpy.array(rows, dtype=float)
    # Scale each column to 1: tokens and their squares are large.
    scales = abs(rows).max(axis=0)
    found, _ = nnls(rows / scales, numpy.array(values, dtype=float))
    return [float(value) for value in found / scales]


def error(model: CostModel, measured: Sequence[Measured]) -> float:
    """Return the mean relative error of the model, as a fraction."""
    return mean([abs(seconds_of(model, m) / m.seconds - 1) for m in measured])


def seconds_of(model: CostModel, measured: Measured) -> float:
    """Return the model's duration of the steps of a measurement."""
    terms: list[float] = [getattr(model, name) for name in TERMS]
    return sum(a * b for a, b in zip(measured.row, terms, strict=True))
