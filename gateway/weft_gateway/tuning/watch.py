"""Counts what the tuner does."""

from __future__ import annotations

from weft_gateway.telemetry.tuning_metrics import TuningMetrics
from weft_gateway.tuning.tuner import Decision, Events


class CountedEvents(Events):
    """Counts windows, decisions and failures."""

    def __init__(self, metrics: TuningMetrics) -> None:
        self._metrics = metrics

    def window(self, triggered: bool) -> None:
        """See Events."""
        self._metrics.windows.labels("yes" if triggered else "no").inc()

    def decided(self, decision: Decision) -> None:
        """See Events."""
        self._metrics.decisions.labels(decision.action.value.replace(" ", "_")).inc()
        self._metrics.cpu.value += decision.cpu_s

    def failed(self, failure: str) -> None:
        """See Events."""
        self._metrics.failures.labels(failure).inc()
