"""Metrics of tuning."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge

from weft_gateway.telemetry.aggregates import Counters


class TuningMetrics:
    """See docs/guides/tuning.md."""

    def __init__(self, r: CollectorRegistry) -> None:
        self.values = Gauge(
            "weft_tuning_value",
            "Tuned values in use: alpha; absent if never changed",
            ("name",),
            registry=r,
        )
        self.leads = Gauge("weft_tuning_leader", "1 if this gateway tunes", registry=r)
        self.failing = Gauge(
            "weft_tuning_failing", "1 since a tuning failed, until one succeeds", registry=r
        )
        self.windows = Counters(
            "weft_tuning_windows",
            "Windows that ended; triggered: significantly worse than the one before",
            ("triggered",),
            r,
        )
        self.decisions = Counters(
            "weft_tuning_decisions", "Decisions at the ends of windows", ("action",), r
        )
        self.failures = Counters(
            "weft_tuning_failures", "Tunings that failed; the values stayed", ("reason",), r
        )
        self.cpu = Counters("weft_tuning_cpu_seconds", "Processor time of replays", (), r).labels()

    def show(self, values: Mapping[str, float], *, leads: bool, failing: bool) -> None:
        """Set the gauges."""
        self.values.clear()
        for name, value in values.items():
            self.values.labels(name).set(value)
        self.leads.set(leads)
        self.failing.set(failing)
