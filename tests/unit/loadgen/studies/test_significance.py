"""p-values and their correction."""

from __future__ import annotations

from math import isnan

import pytest
from weft_bench.studies.cells import geometric
from weft_bench.studies.significance import holm, p_value


def test_p_value_is_that_of_students_t() -> None:
    # scipy.stats.ttest_1samp([0.1, 0.2, 0.4], 0).
    assert p_value([0.1, 0.2, 0.4]) == pytest.approx(0.1181, abs=1e-4)
    assert p_value([-0.1, -0.2, -0.4]) == pytest.approx(p_value([0.1, 0.2, 0.4]))


def test_equal_differences_have_no_spread() -> None:
    assert p_value([0.0, 0.0]) == 1.0
    assert p_value([0.3, 0.3]) == 0.0


def test_one_seed_has_no_p_value() -> None:
    assert isnan(p_value([0.3]))
    assert isnan(p_value([]))


def test_ratio_is_below_the_level_exactly_if_its_interval_excludes_one() -> None:
    for logs in ([0.1, 0.2, 0.4], [0.2, 0.21, 0.22], [-0.3, -0.29, -0.4], [0.0, 0.1]):
        ratio = geometric(logs)
        assert (ratio.p < 0.05) == (ratio.above(1) or ratio.below(1))


def test_holm_multiplies_by_the_number_of_remaining_comparisons() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_adjusted_values_never_fall_and_are_at_most_one() -> None:
    assert holm([0.5, 0.9, 0.02]) == pytest.approx([1.0, 1.0, 0.06])
    assert holm([0.3]) == [0.3]
    assert holm([]) == []
