"""Cost models from measurements."""

from __future__ import annotations

import pytest
from weft_bench.costs.fit import TERMS, Measured, error, fit_costs

TRUE = (0.002, 0.0001, 0.0005, 1e-7, 1e-9)
GRID = [(1, 0, n, n * c, 0) for n in (1, 4, 16) for c in (100, 2000)] + [
    (1, p, 0, 0, p * p / 2) for p in (16, 256, 2048, 8000, 30_000)
]


def measured(row, terms=TRUE, off=1.0):
    return Measured(*row, off * sum(a * b for a, b in zip(row, terms, strict=True)))


def test_fit_recovers_the_cost_model():
    cost = fit_costs([measured(row) for row in GRID])
    assert [getattr(cost, name) for name in TERMS] == pytest.approx(TRUE)
    assert cost.weights_s == 0
    assert error(cost, [measured(row) for row in GRID]) == pytest.approx(0, abs=1e-9)


def test_noise_is_averaged_and_reported():
    noisy = [measured(row, off=1.05 if i % 2 else 0.95) for i, row in enumerate(GRID * 4)]
    cost = fit_costs(noisy)
    assert cost.prefill_token_s == pytest.approx(TRUE[1], rel=0.1)
    assert 0.03 < error(cost, noisy) < 0.06


def test_jointly_measured_steps_are_weighted_by_their_number():
    many = [measured(tuple(8 * x for x in row)) for row in GRID]
    assert fit_costs(many).step_s == pytest.approx(TRUE[0])


def test_a_term_that_would_be_negative_is_left_out():
    cost = fit_costs([measured(row, (0.002, 0.0001, 0.0005, -1e-7, 1e-9)) for row in GRID])
    assert cost.context_token_s == 0
    assert cost.decode_sequence_s > 0


@pytest.mark.parametrize(
    "rows", [[], [GRID[0]] * 9, [row for row in GRID if not row[1]]], ids=["none", "one", "decode"]
)
def test_insufficient_measurements_are_refused(rows):
    with pytest.raises(ValueError, match="measurements"):
        fit_costs([measured(row) for row in rows])


def test_a_duration_is_positive():
    with pytest.raises(ValueError, match="above 0"):
        fit_costs([Measured(1, 1, 0, 0, 0, 0.0)])
