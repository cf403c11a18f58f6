"""Exports traces and metrics with OpenTelemetry's SDK, over OTLP and HTTP. Its environment
variables (`OTEL_*`) configure it. The SDK's threads do all the work but the sampling.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import ssl
import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from time import monotonic
from typing import Final, cast

import httpx
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from opentelemetry.util.re import parse_env_headers

from weft_gateway.telemetry import otlp
from weft_gateway.telemetry.traces import PROVIDER, Ended, Ids

log = logging.getLogger(__name__)

_NAME: Final = "weft_gateway"
# Statuses of a collector that may take the same request later.
_AGAIN: Final = (429, 502, 503, 504)
# Seconds, of calls as the conventions want them.
_CALLS: Final = tuple(0.01 * 2**n for n in range(14))
_PROGRAMS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400)
# Clients name their agents: so many have metrics of their own.
_AGENTS: Final = 64
_SHUTDOWN_S: Final = 2.0


class _Queued:
    """One ended call or program in the queue of the SDK's processor, which passes on what has a
    sampled context: unsampled calls count in the metrics.
    """

    __slots__ = ("ended",)
    context = SpanContext(1, 1, False, TraceFlags(TraceFlags.SAMPLED))

    def __init__(self, ended: Ended) -> None:
        self.ended = ended


class Otel:
    """OpenTelemetry's providers, for one gateway. Nothing is global."""

    def __init__(self) -> None:
        self._provider = provider = TracerProvider(shutdown_on_exit=False)
        wanted = os.environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() != "none"
        readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if wanted else []
        self._meters = MeterProvider(readers, provider.resource, shutdown_on_exit=False)
        self._exporter = _Exporter(provider.resource, _Metrics(self._meters))
        self._processor = BatchSpanProcessor(self._exporter)

    def sampled(self, trace: int, parent: Ids | None) -> bool:
        """Whether the SDK's sampler takes a trace. parent: the client's span."""
        context = None
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(_remote(parent)))
        found = self._provider.sampler.should_sample(context, trace, _NAME)
        return found.decision is Decision.RECORD_AND_SAMPLE

    def export(self, ended: Ended) -> None:
        """Queue an ended call or program. Never waits; the oldest ones are lost if it is full."""
        self._processor.on_end(cast(ReadableSpan, _Queued(ended)))

    async def aclose(self) -> None:
        """Export what is left: the metrics last, because spans count in them."""

        def shut_down() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            self._meters.shutdown(_SHUTDOWN_S * 1000)

        work = asyncio.get_running_loop().run_in_executor(None, shut_down)
        if not (await asyncio.wait([work], timeout=_SHUTDOWN_S))[0]:
            # No collector answers: this ends the attempts.
            self._exporter.shutdown()


class _Exporter(SpanExporter):
    """Writes and sends spans, in the processor's thread. The SDK's exporter would take ten times
    as much processor time for it, more than a third of a short call's.
    """

    def __init__(self, resource: Resource, metrics: _Metrics) -> None:
        self._metrics = metrics
        self._resource = otlp.resource(resource.attributes)
        self._scope = otlp.scope(_NAME, version("weft-gateway"))
        self._url = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "") or (
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].rstrip("/") + "/v1/traces"
        )
        self._gzip = _option("COMPRESSION") == "gzip"
        self._timeout_s = float(_option("TIMEOUT") or 10)
        headers = {**parse_env_headers(_option("HEADERS"), liberal=True)}
        headers["content-type"] = "application/x-protobuf"
        if self._gzip:
            headers["content-encoding"] = "gzip"
        tls = ssl.create_default_context(cafile=_option("CERTIFICATE") or None)
        if own := _option("CLIENT_CERTIFICATE"):
            tls.load_cert_chain(own, _option("CLIENT_KEY") or None)
        self._client = httpx.Client(headers=headers, timeout=self._timeout_s, verify=tls)
        self._stopped = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch of queued calls and programs."""
        queued = [one.ended for one in cast(Sequence[_Queued], spans)]
        self._metrics.count(queued)
        written = [span for ended in queued if ended.ids.sampled for span in otlp.spans(ended)]
        if not written or self._send(otlp.request(self._resource, self._scope, written)):
            return SpanExportResult.SUCCESS
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Stop, also while a collector does not answer."""
        self._stopped.set()

    def _send(self, body: bytes) -> bool:
        """Send a request, again after a while if the collector is away or busy."""
        until, pause_s = monotonic() + self._timeout_s, 1.0
        if self._gzip:
            body = gzip.compress(body)
        while True:
            try:
                answer = self._client.post(self._url, content=body)
                if answer.is_success:
                    return True
                why, again = f"status {answer.status_code}", answer.status_code in _AGAIN
            except httpx.HTTPError as error:
                why, again = f"{type(error).__name__}: {error}", True
            if not again or monotonic() + pause_s > until or self._stopped.wait(pause_s):
                log.warning("spans are lost: %s does not take them (%s)", self._url, why)
                return False
            pause_s *= 2


def _option(name: str) -> str:
    """Return an option of OTLP: that of traces, or that of all signals."""
    found = os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}", "")
    return (found or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", "")).strip()


class _Metrics:
    """The metrics of the GenAI conventions."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter(_NAME, version("weft-gateway"))

        def times(name: str, bounds: Sequence[float]) -> Histogram:
            return meter.create_histogram(name, "s", explicit_bucket_boundaries_advisory=bounds)

        call = "gen_ai.client.inference"
        self._duration = times(f"{call}.duration", _CALLS)
        self._first = times(f"{call}.time_to_first_chunk", _CALLS)
        self._chunk = times(f"{call}.time_per_output_chunk", _CALLS)
        self._tokens = [
            meter.create_counter(f"{call}.usage.{name}", "{token}")
            for name in ("input_tokens", "output_tokens", "cache_read.input_tokens")
        ]
        self._agent = times("gen_ai.invoke_agent.duration", _PROGRAMS)
        self._agents: set[str] = set()

    def count(self, batch: Sequence[Ended]) -> None:
        """Count calls and programs."""
        # By attributes: adding each call by itself would cost more than its spans.
        tokens: dict[tuple[str, str], list[int]] = {}
        for ended in batch:
            if ended.place is not None:
                self._count(ended, ended.place)
                if ended.tokens is not None:
                    sums = tokens.setdefault(ended.place, [0, 0, 0])
                    for n, number in enumerate(ended.tokens):
                        sums[n] += number
        for (operation, model), sums in tokens.items():
            plain = _attributes(operation, "gen_ai.request.model", model, "")
            for counter, number in zip(self._tokens, sums, strict=True):
                counter.add(number, {**plain, "gen_ai.token.modality": "unknown"})

    def _count(self, ended: Ended, place: tuple[str, str]) -> None:
        operation, name = place
        if not ended.is_call:
            if name not in self._agents:
                name = "other" if len(self._agents) >= _AGENTS else name
                self._agents.add(name)
            plain = _attributes(operation, "gen_ai.agent.name", name, "")
            self._agent.record(ended.seconds, plain)
            return
        plain = _attributes(operation, "gen_ai.request.model", name, "")
        failed = _attributes(operation, "gen_ai.request.model", name, ended.error)
        self._duration.record(ended.seconds, failed)
        if ended.first_s:
            self._first.record(ended.first_s, plain)
            if ended.tokens is not None and ended.tokens[1] > 1:
                rest_s = ended.seconds - ended.first_s
                self._chunk.record(rest_s / (ended.tokens[1] - 1), plain)


def _remote(ids: Ids) -> SpanContext:
    return SpanContext(ids.trace, ids.span, True, TraceFlags(int(ids.sampled)))


@lru_cache(maxsize=4096)
def _attributes(operation: str, kind: str, name: str, error: str) -> dict[str, str]:
    found = {"gen_ai.operation.name": operation, "gen_ai.provider.name": PROVIDER}
    if name:
        found[kind] = name
    if error:
        found["error.type"] = error
    return found
