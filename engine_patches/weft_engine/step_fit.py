"""Fits the cost of a step to an engine's own steps. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf, sqrt
from typing import Any, Final

import numpy

from weft_engine.step_cost import PrefillPace, attention_pairs

_SMOOTHING: Final = 0.1
# Steps with fewer tokens were probably limited by the weights.
_PREFILL_TOKENS: Final = 256
# Steps before the first fit, and at most between two fits, each of which takes 0.6 to 1.4 ms.
_FIRST_FIT: Final = 32
_MOST_STEPS: Final = 512
# A step fades to 1/e in 5,000 steps: each new one gets more weight.
_GROWTH: Final = 1 + 1 / 5000
_MOST_WEIGHT: Final = 1e9
_ERROR_SMOOTHING: Final = 0.02
# The resolution of durations, seconds.
_LEAST_S: Final = 1e-6
# A step shorter than this share of the mean one counts as one of this length. One shorter than this
# share of its prediction is ignored, and so is one whose arithmetic and weights are within a factor
# of `_NEAR`, because noise decides which of them limits it. But if the mean relative error says
# that the fit is wrong, no step is ignored.
_SHORTEST: Final = 0.2
_NEAR: Final = 1.5
_WRONG: Final = 0.5
# Keeps the equations solvable while steps do not separate two coefficients. Another coefficient is
# used only if it explains at least this share more.
_RIDGE: Final = 1e-9
_EXPLAINS: Final = 1e-7


@dataclass(frozen=True, slots=True)
class StepCosts:
    """A step's duration in seconds:

        step_s + max(weights_s, prefill_token_s * prompt tokens + prefill_pair_s * pairs
                                + decode_sequence_s * sequences)
               + context_token_s * tokens of context

    The weights are read once in each step, which hides the arithmetic of a small batch. pairs: see
    `attention_pairs`, summed over the prompts.
    """

    step_s: float
    weights_s: float
    prefill_token_s: float
    decode_sequence_s: float
    context_token_s: float
    prefill_pair_s: float = 0.0

    def arithmetic_s(self, prefill: int, decode: int, pairs: int) -> float:
        """Return the predicted arithmetic of a step."""
        return (
            prefill * self.prefill_token_s
            + pairs * self.prefill_pair_s
            + decode * self.decode_sequence_s
        )

    def step(self, prefill: int, decode: int, context: int, pairs: int = 0) -> float:
        """Return the predicted duration of a step."""
        arithmetic_s = self.arithmetic_s(prefill, decode, pairs)
        most_s = arithmetic_s if arithmetic_s > self.weights_s else self.weights_s
        return self.step_s + most_s + context * self.context_token_s

    def prefill_s(self, tokens: int, context: int = 0) -> float:
        """Return the seconds of arithmetic for `tokens` prompt tokens after `context` others."""
        pairs = attention_pairs(tokens, context)
        return tokens * self.prefill_token_s + pairs * self.prefill_pair_s

    def prefill_tokens(self, seconds: float, context: int) -> float:
        """Return the prompt tokens after `context` others whose arithmetic takes these seconds;
        infinite if it takes no time."""
        one_s, pair_s = self.prefill_s(1, context), self.prefill_pair_s
        if not one_s or seconds == inf:
            return inf
        one_s -= pair_s / 2
        return 2 * seconds / (one_s + sqrt(one_s * one_s + 2 * pair_s * seconds))


class StepFit:
    """Fits `StepCosts` to an engine's steps: least squares of relative errors over non-negative
    coefficients, in which earlier steps fade.

    The present fit decides whether a step was limited by its arithmetic or by the weights; without
    one, its prompt tokens do. A step adds to the normal equations of one of the two
    kinds, in about 2 us. The equations are solved after a growing number of steps.

    costs: the present fit, None before the first one, and until a step has computed many prompt
    tokens. samples: number of steps that it comes from. error: the mean relative error of
    recent predictions.
    """

    def __init__(self) -> None:
        self.costs: StepCosts | None = None
        self.samples = 0
        self.error = 0.0
        self._due = _FIRST_FIT
        self._first: list[tuple[int, int, int, int, float]] | None = []
        self._weight = 1.0
        self._mean_s = 0.0
        # Sums of products of (1, context, 1 / scale) over the steps that the weights limited, and
        # of (1, prefill, decode, context, pairs, 1 / scale) over the others. The last factor is the
        # duration. All are weighted.
        self._light = [0.0] * 5
        self._heavy = [0.0] * 20

    def note(self, prefill: int, decode: int, context: int, pairs: int, duration_s: float) -> None:
        """Learn from a step. prefill: prompt tokens. decode: sequences. context: tokens before
        those computed. pairs: see `attention_pairs`, summed over the prompts."""
        if duration_s < _LEAST_S:
            return
        if self._first is not None:
            # The mean of some steps tells which of them are far too short.
            self._first.append((prefill, decode, context, pairs, duration_s))
            if len(self._first) < _FIRST_FIT:
                return
            first, self._first = self._first, None
            self._mean_s = sum(step[4] for step in first) / len(first)
            for step in first:
                self.note(*step)
            return
        self._mean_s += _SMOOTHING * (duration_s - self._mean_s)
        # Steps that seem far too short, because two were reported together, must not dominate.
        scale = max(duration_s, _SHORTEST * self._mean_s)
        costs, heavy = self.costs, prefill >= _PREFILL_TOKENS
        if costs is not None:
            expected_s = costs.step(prefill, decode, context, pairs)
            if expected_s > scale:
                scale = expected_s
            unclear, weights_s = duration_s < _SHORTEST * expected_s, costs.weights_s
            if weights_s:
                arithmetic_s = costs.arithmetic_s(prefill, decode, pairs)
                heavy = arithmetic_s > weights_s
                unclear |= weights_s < _NEAR * arithmetic_s < _NEAR * _NEAR * weights_s
            self.error += _ERROR_SMOOTHING * (abs(duration_s - expected_s) / scale - self.error)
            if unclear and self.error < _WRONG:
                return
        one = self._weight / (scale * scale)
        if heavy:
            sums, p, d, c, a = (
                self._heavy, one * prefill, one * decode, one * context, one * pairs
            )  # fmt: skip
            sums[0] += one
            sums[1] += p
            sums[2] += d
            sums[3] += c
            sums[4] += a
            sums[5] += p * prefill
            sums[6] += p * decode
            sums[7] += p * context
            sums[8] += p * pairs
            sums[9] += d * decode
            sums[10] += d * context
            sums[11] += d * pairs
            sums[12] += c * context
            sums[13] += c * pairs
            sums[14] += a * pairs
            sums[15] += one * duration_s
            sums[16] += p * duration_s
            sums[17] += d * duration_s
            sums[18] += c * duration_s
            sums[19] += a * duration_s
        else:
            sums, c = self._light, one * context
            sums[0] += one
            sums[1] += c
            sums[2] += c * context
            sums[3] += one * duration_s
            sums[4] += c * duration_s
        self._weight *= _GROWTH
        self.samples += 1
        # Without a long prompt, its cost would be 0, and attract all long prompts to this engine.
        if self.samples >= self._due and self._heavy[0]:
            self._due += min(self._due, _MOST_STEPS)
            self._solve()

    def state(self) -> dict[str, float] | None:
        """Return the fit for `/weft/state`; None before the first one."""
        if self.costs is None:
            return None
        return {**asdict(self.costs), "samples": self.samples, "relative_error": self.error}

    def _solve(self) -> None:
        one, c, cc, y, cy = self._light
        h = self._heavy
        matrix = numpy.array(
            [
                [one + h[0], one, h[1], h[2], c + h[3], h[4]],
                [one, one, 0.0, 0.0, c, 0.0],
                [h[1], 0.0, h[5], h[6], h[7], h[8]],
                [h[2], 0.0, h[6], h[9], h[10], h[11]],
                [c + h[3], c, h[7], h[10], cc + h[12], h[13]],
                [h[4], 0.0, h[8], h[11], h[13], h[14]],
            ]
        )
        values = [y + h[15], y, h[16], h[17], cy + h[18], h[19]]
        self.costs = StepCosts(*nonnegative(matrix, values))
        if self._weight > _MOST_WEIGHT:
            self._light = [value / self._weight for value in self._light]
            self._heavy = [value / self._weight for value in h]
            self._weight = 1.0


def nonnegative(matrix: Any, values: Sequence[float]) -> list[float]:
    """Return the non-negative x with the least x^T matrix x - 2 values x. The matrix is symmetric
    and positive semidefinite. Of several that are about equal, the one with the fewest coefficients
    above 0 is returned, and of these the first one."""
    count = len(values)
    diagonal = numpy.sqrt(numpy.diag(matrix))
    scales = numpy.where(diagonal > 0, diagonal, 1.0)
    scaled = matrix / numpy.outer(scales, scales) + _RIDGE * numpy.eye(count)
    wanted = numpy.array(values) / scales
    best, found = 0.0, numpy.zeros(count)
    # At most 63 subsets of the coefficients: simpler than an active set, and exact.
    for size in range(1, count + 1):
        for subset in itertools.combinations(range(count), size):
            at = list(subset)
            solved = numpy.linalg.solve(scaled[numpy.ix_(at, at)], wanted[at])
            loss = -float(wanted[at] @ solved)
            if loss < best * (1 + _EXPLAINS) and (solved >= 0).all():
                best, found = loss, numpy.zeros(count)
                found[at] = solved
    return [float(value) for value in found / scales]


class StepMeter:
    """Measures an engine's steps. fit: their costs. pace: seconds per prompt token. context: tokens
    before the computed ones in the last step."""

    def __init__(self) -> None:
        self.context = 0
        self.fit = StepFit()
        self.pace = PrefillPace()

    def note(
        self,
        prompts: Mapping[str, int],
        sequences: int,
        context: int,
        pairs: int,
        duration_s: float,
    ) -> None:
        """Learn from a step. prompts: computed prompt tokens by sequence. sequences: all in the
        step. context, pairs: as for StepFit."""
        if not sequences:
            return
        prefill, decode = sum(prompts.values()), sequences - len(prompts)
        self.context = context
        self.pace.note(prefill + decode, sequences, duration_s)
        self.fit.note(prefill, decode, context, pairs, duration_s)
