"""Random workflows: the machine has the results of the naive evaluation, in any order of events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.dispatch_driver import check


@pytest.mark.slow
@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_results_are_those_of_the_naive_evaluation(seed: int) -> None:
    check(seed)
