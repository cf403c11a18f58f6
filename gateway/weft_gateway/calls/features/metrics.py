"""Metrics of calls: overhead, times, outcomes, what engines report."""

from __future__ import annotations

from time import perf_counter

from weft_gateway.calls.call import PREFILL, Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.telemetry.metrics import Metrics


class MetricsObserver(CallObserver):
    """Counts calls."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._bind = metrics.bind

    def observes(self, endpoint: Endpoint) -> bool:
        """Prefills count, too."""
        return True

    def sending(self, call: Call) -> None:
        """Observe the gateway's own time before the engine has the call."""
        if call.endpoint is not PREFILL:
            self._metrics.overhead.observe(call.overhead_s)

    def head(self, call: Call) -> None:
        """Observe the time to the first byte."""
        metrics = self._bind(call.endpoint.name, call.replica)
        metrics.first_byte.observe(call.first_byte_s)

    def closed(self, call: Call) -> None:
        """Count the outcome and the engine's report."""
        metrics = self._bind(call.endpoint.name, call.replica)
        metrics.outcomes[call.outcome].inc()
        if call.report is not None:
            metrics.served(call.report)
        if call.usage is not None:
            metrics.used(call.usage)
        if call.dropped:
            self._metrics.dropped.labels(call.replica).inc(call.dropped)
        if call.saved_s:
            for overlap, seconds in call.saved_s.items():
                self._metrics.saved.labels(overlap).inc(seconds)

    def ended(self, call: Call) -> None:
        """Observe the total time of an answered call."""
        if call.error is None:
            metrics = self._bind(call.endpoint.name, call.replica)
            metrics.latency.observe(perf_counter() - call.begun)
