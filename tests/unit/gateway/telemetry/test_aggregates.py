"""Counters and histograms have the same exposition as those of prometheus_client."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from weft_gateway.telemetry.aggregates import Counters, Histograms

BOUNDS = (0.1, 0.5, 1)


def exposed(registry: CollectorRegistry) -> str:
    """Return the text format without creation times."""
    return re.sub(r"(_created\S*) \S+", r"\1", generate_latest(registry).decode())


def test_counter_has_the_exposition_of_prometheus_client() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    for counter in (
        Counters("calls", "Calls", ("endpoint", "replica"), ours),
        Counter("calls", "Calls", ("endpoint", "replica"), registry=theirs),
    ):
        counter.labels("chat", "r0").inc()
        counter.labels("chat", "r0").inc(2.5)
        counter.labels("chat", "r1").inc(0)
    assert 'calls_total{endpoint="chat",replica="r0"} 3.5' in exposed(ours)
    assert exposed(ours) == exposed(theirs)


def test_histogram_has_the_exposition_of_prometheus_client() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    for histogram in (
        Histograms("time", "Time", ("endpoint",), BOUNDS, ours),
        Histogram("time", "Time", ("endpoint",), buckets=BOUNDS, registry=theirs),
    ):
        for value in (0.0, 0.1, 0.10001, 0.5, 1.0, 1.5, 1e9):
            histogram.labels("chat").observe(value)
    assert 'time_bucket{endpoint="chat",le="0.5"} 4.0' in exposed(ours)
    assert exposed(ours) == exposed(theirs)


def test_histogram_may_have_no_labels() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    Histograms("time", "Time", (), BOUNDS, ours).labels().observe(0.2)
    Histogram("time", "Time", buckets=BOUNDS, registry=theirs).observe(0.2)
    assert exposed(ours) == exposed(theirs)


def test_labelled_children_are_kept() -> None:
    registry = CollectorRegistry()
    calls = Counters("calls", "Calls", ("replica",), registry)
    assert calls.labels("r0") is calls.labels("r0")
    assert calls.labels("r0") is not calls.labels("r1")
