"""Random streams."""

from __future__ import annotations

import pytest
from weft_bench.workloads.streams import poisson_arrivals, stream


def test_stream_depends_only_on_seed_and_purpose():
    assert stream(1, "a").random() == stream(1, "a").random()
    assert stream(1, "a").random() != stream(1, "b").random()
    assert stream(1, "a").random() != stream(2, "a").random()


def test_arrivals_have_the_rate():
    times = poisson_arrivals(stream(0, "arrivals"), 4.0, 4000)
    assert times == sorted(times)
    assert times[-1] / len(times) == pytest.approx(0.25, rel=0.05)
