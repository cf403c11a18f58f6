"""Sums and histograms that calls update, exported as metrics on scrape. One thread writes.

Prometheus counters take a lock per addition, and a call makes a dozen additions: that cost more
than routing the call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from time import time
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

_INF: Final = float("inf")


class Counter:
    """A sum that only grows."""

    __slots__ = ("created_s", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.created_s = time()

    def inc(self, amount: float = 1.0) -> None:
        """Add `amount`, which is not negative."""
        self.value += amount


class Histogram:
    """Number of observed values per bucket, and their sum."""

    __slots__ = ("_bounds", "_counts", "created_s", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: ascending inclusive upper bounds of buckets. An unbounded bucket is added."""
        self._bounds = (*bounds, _INF)
        self._counts = [0] * len(self._bounds)
        self.sum = 0.0
        self.created_s = time()

    def observe(self, value: float) -> int:
        """Count one value. Returns the index of its bucket."""
        self.sum += value
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += 1
        return bucket

    def buckets(self) -> list[tuple[str, float]]:
        """Return (upper bound, cumulative count) of each bucket, in Prometheus' format."""
        bounds = map(floatToGoString, self._bounds)
        return list(zip(bounds, accumulate(map(float, self._counts)), strict=True))


class Counters(Collector):
    """One counter metric with its labelled children."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._parts: dict[tuple[str, ...], Counter] = {}
        registry.register(self)

    def labels(self, *values: str) -> Counter:
        """Return the child with these label values, in the order of the labels."""
        part = self._parts.get(values)
        if part is None:
            part = self._parts[values] = Counter()
        return part

    def forget(self, label: str, value: str) -> None:
        """Remove the children with this value of a label."""
        at = self._labels.index(label)
        self._parts = {key: part for key, part in self._parts.items() if key[at] != value}

    def collect(self) -> Iterator[CounterMetricFamily]:
        """See Collector."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, part in self._parts.items():
            family.add_metric(values, part.value, part.created_s)
        yield family


class Histograms(Collector):
    """One histogram metric with its labelled children. Without labels, `labels()` returns its only
    child.
    """

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        bounds: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._bounds = tuple(bounds)
        self._parts: dict[tuple[str, ...], Histogram] = {}
        registry.register(self)

    def labels(self, *values: str) -> Histogram:
        """Return the child with these label values, in the order of the labels."""
        part = self._parts.get(values)
        if part is None:
            part = self._parts[values] = Histogram(self._bounds)
        return part

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """See Collector."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, part in self._parts.items():
            family.add_metric(values, part.buckets(), part.sum)
            named = dict(zip(self._labels, values, strict=True))
            family.add_sample(f"{self._name}_created", named, part.created_s)
        yield family
