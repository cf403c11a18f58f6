"""Prometheus metrics. Every label has bounded values: endpoints, outcomes, replicas, our codes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from weft_gateway.telemetry.tallies import Distributions, Tallies

_LATENCY: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_OVERHEAD: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1)


class CallMetrics:
    """The children for one (endpoint, replica), bound once: finding them costs more than using
    them."""

    __slots__ = (
        "cached",
        "first_byte",
        "latency",
        "outcomes",
        "output",
        "preemptions",
        "prompt",
        "service",
        "waiting",
    )

    def __init__(self, metrics: Metrics, endpoint: str, replica: str) -> None:
        self.latency = metrics.latency.labels(endpoint)
        self.first_byte = metrics.first_byte.labels(endpoint)
        self.outcomes = {
            outcome: metrics.calls.labels(endpoint, outcome, replica)
            for outcome in ("ok", "error", "aborted")
        }
        self.service = metrics.service.labels(replica)
        self.waiting = metrics.waiting.labels(replica)
        self.prompt = metrics.prompt.labels(replica)
        self.cached = metrics.cached.labels(replica)
        self.output = metrics.output.labels(replica)
        self.preemptions = metrics.preemptions.labels(replica)

    def used(
        self,
        service_s: float,
        waiting_s: float,
        prompt: int,
        cached: int,
        output: int,
        preemptions: int,
    ) -> None:
        """Add what one call used, as its engine reported it."""
        self.service.value += service_s
        self.waiting.value += waiting_s
        self.prompt.value += prompt
        self.cached.value += cached
        self.output.value += output
        self.preemptions.value += preemptions


class Metrics:
    """The gateway's metrics in a registry of their own, so that several gateways fit a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.calls = Tallies("weft_calls", "Calls closed", ("endpoint", "outcome", "replica"), r)
        self.errors = Counter("weft_errors", "Errors of the gateway's own", ("code",), registry=r)
        self.task_failures = Counter(
            "weft_task_failures",
            "Failures of background tasks, which were restarted, and of work behind calls",
            ("task",),
            registry=r,
        )
        self.in_flight = Gauge(
            "weft_calls_in_flight", "Calls open, over all gateways", ("replica",), registry=r
        )
        self.latency = Distributions(
            "weft_call_seconds", "From request to end", ("endpoint",), _LATENCY, r
        )
        self.first_byte = Distributions(
            "weft_first_byte_seconds",
            "From request to the first byte of the answer",
            ("endpoint",),
            _LATENCY,
            r,
        )
        self.overhead = Distributions(
            "weft_overhead_seconds",
            "The gateway's own time before a call is on its way to a replica",
            (),
            _OVERHEAD,
            r,
        ).labels()
        self.service = Tallies("weft_service_seconds", "Attained service", ("replica",), r)
        self.waiting = Tallies("weft_waiting_seconds", "Time in engine queues", ("replica",), r)
        self.prompt = Tallies("weft_prompt_tokens", "Prompt tokens", ("replica",), r)
        self.cached = Tallies(
            "weft_cached_tokens", "Prompt tokens found in the prefix cache", ("replica",), r
        )
        self.output = Tallies("weft_output_tokens", "Output tokens", ("replica",), r)
        self.preemptions = Tallies("weft_preemptions", "Preemptions", ("replica",), r)
        self.dropped = Tallies(
            "weft_reports_dropped",
            "Reports of engines that were malformed or about another call",
            ("replica",),
            r,
        )
        self.saved = Tallies(
            "weft_saved_seconds",
            "Seconds that overlaps of tools with the engine took off programs",
            ("overlap",),
            r,
        )
        self.programs = Gauge("weft_programs", "Programs alive, over all gateways", registry=r)
        self.begun = Tallies(
            "weft_programs_begun", "Programs begun, over all gateways", (), r
        ).labels()
        self.ended = Tallies(
            "weft_programs_ended", "Programs ended, over all gateways", (), r
        ).labels()
        self.local = Gauge(
            "weft_table_local",
            "1 while the process table's store is away and this gateway goes on by its own view",
            registry=r,
        )
        self.healthy = Gauge("weft_replica_healthy", "1 if healthy", ("replica",), registry=r)
        self.bind = lru_cache(maxsize=4096)(self._bind)

    def _bind(self, endpoint: str, replica: str) -> CallMetrics:
        return CallMetrics(self, endpoint, replica)

    def error(self, code: str) -> None:
        """Count an error of ours."""
        self.errors.labels(code).inc()

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)
