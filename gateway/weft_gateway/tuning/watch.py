"""Counts what the tuner does."""

from __future__ import annotations

from weft_gateway.telemetry.aggregates import Counter
from weft_gateway.telemetry.tuning_metrics import TuningMetrics
from weft_gateway.tuning.process import Failure
from weft_gateway.tuning.tuner import Action, Decision, Events


class CountedEvents(Events):
    """Counts windows, decisions and failures."""

    def __init__(self, metrics: TuningMetrics) -> None:
        """Export each count from 0: Prometheus cannot see the increase of a new series."""
        self._metrics = metrics
        for triggered in (False, True):
            self._window(triggered)
        for action in Action:
            self._decision(action)
        for failure in Failure:
            metrics.failures.labels(failure.value)

    def window(self, triggered: bool) -> None:
        """See Events."""
        self._window(triggered).inc()

    def decided(self, decision: Decision) -> None:
        """See Events."""
        self._decision(decision.action).inc()
        self._metrics.cpu.value += decision.cpu_s

    def failed(self, failure: Failure) -> None:
        """See Events."""
        self._metrics.failures.labels(failure.value).inc()

    def _window(self, triggered: bool) -> Counter:
        return self._metrics.windows.labels("yes" if triggered else "no")

    def _decision(self, action: Action) -> Counter:
        return self._metrics.decisions.labels(action.value.replace(" ", "_"))
