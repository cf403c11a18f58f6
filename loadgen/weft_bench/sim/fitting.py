"""Fits a cost model to measured durations. Pure.

Each measurement is the time of several steps together, a row of what they computed. The model is
the linear one (`CostModel` without `weights_s`): least squares of relative errors, so that short
steps count as much as long ones, over coefficients that are not negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft_bench.sim.costs import CostModel

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
    if any(not m.seconds > 0 for m in measured):
        raise ValueError("a measured duration must be above 0")
    rows = [[value / m.seconds for value in m.row] for m in measured]
    used = list(range(len(_TERMS)))
    while True:
        found = _solve([[row[i] for i in used] for row in rows])
        if min(found) >= 0:
            break
        # A term that would have to be negative is not seen in these durations.
        used.remove(used[found.index(min(found))])
    values = dict.fromkeys(_TERMS, 0.0)
    values.update({_TERMS[i]: value for i, value in zip(used, found, strict=True)})
    return CostModel(**values)


def error(model: CostModel, measured: Sequence[Measured]) -> float:
    """Mean relative error of the model, as a share."""
    total = 0.0
    for m in measured:
        terms = (getattr(model, name) for name in _TERMS)
        total += abs(sum(a * b for a, b in zip(m.row, terms, strict=True)) / m.seconds - 1)
    return total / len(measured)


def _solve(rows: Sequence[Sequence[float]]) -> list[float]:
    """Least squares of `row . x = 1` by the normal equations, each column scaled to 1."""
    width = len(rows[0]) if rows else 0
    scales = [max((abs(row[i]) for row in rows), default=0.0) for i in range(width)]
    if not width or min(scales) == 0:
        raise ValueError("the measurements do not hold every term")
    scaled = [[value / scale for value, scale in zip(row, scales, strict=True)] for row in rows]
    matrix = [
        [sum(row[i] * row[j] for row in scaled) for j in range(width)]
        + [sum(row[i] for row in scaled)]
        for i in range(width)
    ]
    for pivot in range(width):
        best = max(range(pivot, width), key=lambda i: abs(matrix[i][pivot]))
        matrix[pivot], matrix[best] = matrix[best], matrix[pivot]
        if abs(matrix[pivot][pivot]) < 1e-12:
            raise ValueError("the measurements do not tell the terms apart")
        for other in range(width):
            if other != pivot:
                factor = matrix[other][pivot] / matrix[pivot][pivot]
                matrix[other] = [
                    a - factor * b for a, b in zip(matrix[other], matrix[pivot], strict=True)
                ]
    return [matrix[i][width] / matrix[i][i] / scales[i] for i in range(width)]
