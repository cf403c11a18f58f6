"""Exports traces and metrics with OpenTelemetry's SDK, over OTLP and HTTP. Its environment
variables (`OTEL_*`) configure it. The SDK's threads do all the work but the sampling.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Final, cast

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from weft_gateway.telemetry.traces import PROVIDER, Ended, Ids, new_span

_NAME: Final = "weft_gateway"
_NS: Final = 1_000_000_000
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
# Seconds, of calls as the conventions want them.
_CALLS: Final = tuple(0.01 * 2**n for n in range(14))
_PROGRAMS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400)
# Clients name their agents: so many have metrics of their own.
_AGENTS: Final = 64
_SHUTDOWN_S: Final = 5.0


class _Queued:
    """One ended call or program in the queue of the SDK's processor, which passes on what has a
    sampled context: unsampled calls count in the metrics.
    """

    __slots__ = ("ended",)
    context = SpanContext(1, 1, False, _SAMPLED)

    def __init__(self, ended: Ended) -> None:
        self.ended = ended


class Otel:
    """OpenTelemetry's providers, for one gateway. Nothing is global."""

    def __init__(self) -> None:
        self._provider = provider = TracerProvider(shutdown_on_exit=False)
        wanted = os.environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() != "none"
        readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if wanted else []
        self._meters = MeterProvider(readers, provider.resource, shutdown_on_exit=False)
        self._exporter = _Exporter(OTLPSpanExporter(), provider, _Metrics(self._meters))
        self._processor = BatchSpanProcessor(self._exporter)

    def sampled(self, trace: int, parent: Ids | None) -> bool:
        """Whether the SDK's sampler takes a trace. parent: the client's span."""
        context = None
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(_context(parent, remote=True)))
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
    """Makes the spans, in the processor's thread."""

    def __init__(self, exporter: SpanExporter, provider: TracerProvider, metrics: _Metrics) -> None:
        self._exporter = exporter
        self._resource = provider.resource
        self._scope = InstrumentationScope(_NAME, version("weft-gateway"))
        self._metrics = metrics

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch of queued calls and programs."""
        made: list[ReadableSpan] = []
        for queued in cast(Sequence[_Queued], spans):
            self._metrics.count(queued.ended)
            if queued.ended.ids.sampled:
                made += self._spans(queued.ended)
        return self._exporter.export(made) if made else SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Stop, also while a collector does not answer."""
        self._exporter.shutdown()

    def _spans(self, ended: Ended) -> list[ReadableSpan]:
        own, begun_ns = _context(ended.ids), ended.begun_ns
        made = [
            ReadableSpan(
                ended.name,
                own,
                None if ended.parent is None else _context(ended.parent, remote=True),
                self._resource,
                ended.attributes,
                links=[Link(_context(ids)) for ids in ended.links],
                kind=SpanKind.CLIENT if ended.is_call else SpanKind.INTERNAL,
                status=Status(StatusCode.ERROR if ended.error else StatusCode.UNSET),
                start_time=begun_ns,
                end_time=begun_ns + int(ended.seconds * _NS),
                instrumentation_scope=self._scope,
            )
        ]
        for name, begun_s, ended_s in ended.phases:
            made.append(
                ReadableSpan(
                    name,
                    _context(ended.ids._replace(span=new_span())),
                    own,
                    self._resource,
                    start_time=begun_ns + int(begun_s * _NS),
                    end_time=begun_ns + int(max(begun_s, ended_s) * _NS),
                    instrumentation_scope=self._scope,
                )
            )
        return made


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

    def count(self, ended: Ended) -> None:
        """Count a call or a program."""
        if ended.place is None:
            return
        operation, name = ended.place
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
        if ended.tokens is not None:
            tokens = {**plain, "gen_ai.token.modality": "unknown"}
            for counter, number in zip(self._tokens, ended.tokens, strict=True):
                if number:
                    counter.add(number, tokens)


def _context(ids: Ids, *, remote: bool = False) -> SpanContext:
    return SpanContext(ids.trace, ids.span, remote, TraceFlags(int(ids.sampled)))


@lru_cache(maxsize=4096)
def _attributes(operation: str, kind: str, name: str, error: str) -> dict[str, str]:
    found = {"gen_ai.operation.name": operation, "gen_ai.provider.name": PROVIDER}
    if name:
        found[kind] = name
    if error:
        found["error.type"] = error
    return found
