"""Prometheus metrics. Every label has bounded values: endpoint, outcome, replica, error code,
client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from weft_engine.wire import CallReport

from weft_gateway.model import Outcome
from weft_gateway.model.usage import Usage
from weft_gateway.policies.misses import Split
from weft_gateway.telemetry.aggregates import Counters, Histograms

_LATENCY: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_SLACK_BOUNDS: Final = (-60, -30, -10, -5, -2, -1, 0, 1, 2, 5, 10, 30, 60, 300)
_US: Final = 1_000_000
_OVERHEAD: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1)


# Clients that have series of their own.
_MOST_CLIENTS: Final = 32
_CLIENT: Final = re.compile(rb"[A-Za-z][A-Za-z0-9._-]{0,31}")


def client_name(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the name in a client's user agent, without its version; "other" if it has none."""
    for name, value in headers:
        if name == b"user-agent":
            return _client(value)
    return "other"


@lru_cache(maxsize=1024)
def _client(agent: bytes) -> str:
    found = _CLIENT.match(agent)
    return "other" if found is None else found[0].decode().lower()


class CallMetrics:
    """The labelled metrics of one (endpoint, replica), bound once: the lookup costs more than the
    update.
    """

    __slots__ = (
        "cached",
        "first_byte",
        "latency",
        "memory_wait",
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
            outcome: metrics.calls.labels(endpoint, outcome, replica) for outcome in Outcome
        }
        self.service = metrics.service.labels(replica)
        self.waiting = metrics.waiting.labels(replica)
        self.memory_wait = metrics.memory_wait.labels(replica)
        self.prompt = metrics.prompt.labels(replica)
        self.cached = metrics.cached.labels(replica)
        self.output = metrics.output.labels(replica)
        self.preemptions = metrics.preemptions.labels(replica)

    def served(self, report: CallReport) -> None:
        """Add the times of one call, as reported by its engine."""
        self.service.value += report.service_s
        self.waiting.value += report.waiting_s
        self.memory_wait.value += report.memory_wait_s
        self.preemptions.value += report.preemptions

    def used(self, usage: CallReport | Usage) -> None:
        """Add the tokens of one call."""
        self.prompt.value += usage.prompt_tokens
        self.cached.value += usage.cached_tokens
        self.output.value += usage.output_tokens


class Metrics:
    """The gateway's metrics. Each instance has a registry, so that one process can hold several
    gateways.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.calls = Counters("weft_calls", "Calls closed", ("endpoint", "outcome", "replica"), r)
        self.errors = Counters(
            "weft_errors", "Errors that the gateway returned or detected", ("code",), r
        )
        self.task_failures = Counters(
            "weft_task_failures",
            "Failures of background tasks (which restart) and of work after calls",
            ("task",),
            r,
        )
        self.in_flight = Gauge(
            "weft_calls_in_flight", "Open calls, all gateways", ("replica",), registry=r
        )
        self.latency = Histograms(
            "weft_call_seconds",
            "Seconds from the request to the end of the answer",
            ("endpoint",),
            _LATENCY,
            r,
        )
        self.first_byte = Histograms(
            "weft_first_byte_seconds",
            "Seconds from the request to the first byte of the answer",
            ("endpoint",),
            _LATENCY,
            r,
        )
        self.overhead = Histograms(
            "weft_overhead_seconds",
            "Seconds that the gateway spends on a call before it sends it to a replica",
            (),
            _OVERHEAD,
            r,
        ).labels()
        self.service = Counters(
            "weft_service_seconds", "Attained service in seconds", ("replica",), r
        )
        self.waiting = Counters("weft_waiting_seconds", "Seconds in engine queues", ("replica",), r)
        self.memory_wait = Counters(
            "weft_memory_wait_seconds",
            "Seconds in which calls were deferred for KV memory",
            ("replica",),
            r,
        )
        self.retries = Counters(
            "weft_retries",
            "Calls whose replica read nothing of them: retried on another replica, or refused "
            "because the retry budget was used up",
            ("result",),
            r,
        )
        self.memory_waits = Counters(
            "weft_memory_waits",
            "Calls that waited in the gateway for KV memory, by the end of the wait",
            ("replica", "end"),
            r,
        )
        self.budget_limits = Counters(
            "weft_budget_limits",
            "Calls that met the limit of a budget, by whose it is (program, key, class) and what "
            "happened (refuse, warn, hold)",
            ("budget", "then"),
            r,
        )
        self.prompt = Counters("weft_prompt_tokens", "Prompt tokens", ("replica",), r)
        self.cached = Counters(
            "weft_cached_tokens", "Prompt tokens found in the prefix cache", ("replica",), r
        )
        self.sources = Counters(
            "weft_prompt_source_tokens",
            "Prompt tokens by source: cached, loaded, new, or the cause for which they were "
            "computed again; by the client's name in its user agent",
            ("source", "client"),
            r,
        )
        self._clients: set[str] = set()
        self.output = Counters("weft_output_tokens", "Output tokens", ("replica",), r)
        self.preemptions = Counters("weft_preemptions", "Preemptions", ("replica",), r)
        self.dropped = Counters(
            "weft_reports_dropped",
            "Engine reports that were malformed or named another call",
            ("replica",),
            r,
        )
        self.saved = Counters(
            "weft_saved_seconds",
            "Program seconds saved by overlapping tools with the engine",
            ("overlap",),
            r,
        )
        self.body_bytes = Gauge(
            "weft_body_bytes",
            "Bytes of request bodies and WebSocket messages above 64 KiB that the gateway holds",
            registry=r,
        )
        self.programs = Gauge("weft_programs", "Live programs, all gateways", registry=r)
        events = Counters(
            "weft_program_events", "Programs begun and ended, all gateways", ("event",), r
        )
        self.begun, self.ended = events.labels("begun"), events.labels("ended")
        self.local = Gauge(
            "weft_table_local",
            "1 while the process table's store is unreachable and this gateway uses its local view",
            registry=r,
        )
        self.batches = Counters("weft_batches", "Batches that have ended", ("status",), r)
        self.batch_requests = Counters(
            "weft_batch_requests",
            "Requests of batches, by result: succeeded, failed, copied from an identical greedy "
            "request, or sent again",
            ("result",),
            r,
        )
        self.runs = Counters(
            "weft_workflow_runs", "Runs of workflows over HTTP that have ended", ("status",), r
        )
        self.batch_left = Gauge(
            "weft_batch_requests_left",
            "Requests of batches in progress without a result",
            registry=r,
        )
        self.healthy = Gauge("weft_replica_healthy", "1 if healthy", ("replica",), registry=r)
        known = "absent while the replica's costs are unknown or unused"
        self.replica_work = Gauge(
            "weft_replica_work_seconds",
            f"Predicted cost of the open calls, all gateways; {known}",
            ("replica",),
            registry=r,
        )
        self.replica_token = Gauge(
            "weft_replica_token_seconds",
            "Predicted seconds per uncached `prompt` token, and per `answer` token of the usual "
            f"call by itself; {known}",
            ("replica", "token"),
            registry=r,
        )
        self._add_slo()
        self._of_replicas = (
            self.calls,
            self.service,
            self.waiting,
            self.memory_wait,
            self.memory_waits,
            self.prompt,
            self.cached,
            self.output,
            self.preemptions,
            self.dropped,
        )
        self.bind = lru_cache(maxsize=4096)(self._bind)

    def _add_slo(self) -> None:
        """Add the metrics of deadlines."""
        r = self.registry
        self.slo_programs = Counters(
            "weft_slo_programs",
            "Programs, turns or calls with a target that have ended, by SLO class; unended: given "
            "up, failed, or idle for too long; refused: not served",
            ("class", "outcome"),
            r,
        )
        self.slo_late = Counters(
            "weft_slo_late",
            "Programs, turns or calls that were late, by the cause",
            ("class", "cause"),
            r,
        )
        self.slo_goal = Gauge(
            "weft_slo_goal",
            "Share of programs, turns or calls that should meet their target: `attainment` in the "
            "SLO file",
            ("class",),
            registry=r,
        )
        self.slo_slack = Histograms(
            "weft_slo_slack_seconds",
            "A call's budget minus its predicted time, when it is sent",
            ("class",),
            _SLACK_BOUNDS,
            r,
        )
        self.slo_jain = Gauge(
            "weft_slo_jain",
            "Jain's fairness index over the tenants of the last 5 to 10 minutes, of their "
            "attainment or of their service per weight; NaN without any",
            ("of",),
            registry=r,
        )

    def _bind(self, endpoint: str, replica: str) -> CallMetrics:
        return CallMetrics(self, endpoint, replica)

    def forget(self, replica: str) -> None:
        """Remove the series of a replica that was removed."""
        for counters in self._of_replicas:
            counters.forget("replica", replica)
        for gauge in (self.in_flight, self.healthy):
            with suppress(KeyError):
                gauge.remove(replica)
        # It holds counters that no scrape would show any more.
        self.bind.cache_clear()

    def show_costs(
        self, speeds: Mapping[str, tuple[float, float]], work: Mapping[str, int]
    ) -> None:
        """Set the gauges of predicted costs. speeds: seconds per prompt token and per answer token,
        of the replicas whose costs are known. work: microseconds.
        """
        self.replica_work.clear()
        self.replica_token.clear()
        for name, (prompt_s, answer_s) in speeds.items():
            self.replica_work.labels(name).set(work.get(name, 0) / _US)
            self.replica_token.labels(name, "prompt").set(prompt_s)
            self.replica_token.labels(name, "answer").set(answer_s)

    def came_from(self, split: Split, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Count where the tokens of a call's prompt came from. headers: of its client."""
        client = client_name(headers)
        if client not in self._clients:
            if len(self._clients) >= _MOST_CLIENTS:
                client = "other"
            self._clients.add(client)
        count = self.sources.labels
        for source in ("cached", "loaded", "new"):
            tokens = getattr(split, source)
            if tokens:
                count(source, client).value += tokens
        for cause, tokens in split.again.items():
            count(cause.value, client).value += tokens

    def retry(self, result: str) -> None:
        """Count a call that its replica did not read: `retried` elsewhere, or `refused`."""
        self.retries.labels(result).inc()

    def error(self, code: str) -> None:
        """Count an error of the gateway."""
        self.errors.labels(code).inc()

    def render(self) -> bytes:
        """Return all metrics in the text exposition format."""
        return generate_latest(self.registry)
