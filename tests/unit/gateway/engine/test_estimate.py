"""The estimate of prompt lengths."""

import pytest
from weft_gateway.engine.estimate import PRIOR_BYTES_PER_TOKEN, PromptEstimator


def test_prior_applies_before_any_report() -> None:
    assert PromptEstimator().estimate("m", 4000) == 4000 / PRIOR_BYTES_PER_TOKEN


def test_estimate_converges_to_the_engines_counts_per_model() -> None:
    estimator = PromptEstimator()
    for _ in range(100):
        estimator.learn("dense", 2000, 1000)
    assert estimator.estimate("dense", 2000) == pytest.approx(1000, rel=0.01)
    assert estimator.estimate("other", 2000) == 500


def test_single_outlier_changes_the_estimate_little() -> None:
    estimator = PromptEstimator()
    estimator.learn("m", 1_000_000, 1)
    estimator.learn("n", 4, 4)
    assert estimator.estimate("n", 4000) < 1200


@pytest.mark.parametrize(("size", "tokens"), [(100, 0), (0, 10), (100, -5)])
def test_empty_reports_are_ignored(size: int, tokens: int) -> None:
    estimator = PromptEstimator()
    estimator.learn("m", size, tokens)
    assert estimator.estimate("m", 400) == 100


def test_estimate_is_at_least_one_token() -> None:
    assert PromptEstimator().estimate("m", 0) == 1
