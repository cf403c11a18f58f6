"""Series of the emulated device on the engine's `/metrics`, and its summary."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from weft_engine.emulated.clock import Counters


class EmulatedCollector:
    """Reads the counters of the device when Prometheus does. preset, dilate: labels of the series
    `weft_emulated`."""

    def __init__(self, counters: Counters, preset: str, dilate: float) -> None:
        self._counters = counters
        self._preset = preset
        self._dilate = dilate

    def register(self, registry: CollectorRegistry) -> None:
        """Add the series to a registry."""
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the current values."""
        counters = self._counters
        about = GaugeMetricFamily(
            "weft_emulated", "1: the engine is emulated", labels=["preset", "dilate"]
        )
        about.add_metric([self._preset, f"{self._dilate:g}"], 1)
        yield about
        for name, text, value in (
            ("steps", "Steps with work", counters.steps),
            ("busy_seconds", "Summed costs of the steps, engine seconds", counters.busy_s),
            (
                "late_seconds",
                "Engine seconds that the emulated device waited for this machine",
                counters.late_s,
            ),
            (
                "moved_blocks",
                "KV blocks moved between the emulated device and its host",
                counters.moved_blocks,
            ),
        ):
            yield CounterMetricFamily(f"weft_emulated_{name}", text, value)


def summary(counters: Counters, preset: str, dilate: float) -> str:
    """Return the line that an emulated engine prints at its end."""
    return (
        f"EMULATED {preset}, dilate {dilate:g}: {counters.steps} steps, "
        f"{counters.busy_s:.3f} engine seconds, {counters.late_s:.3f} late "
        f"({counters.late_share:.2%}), {counters.moved_blocks} KV blocks moved"
    )
