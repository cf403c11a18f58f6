"""Exports traces and metrics with OpenTelemetry's SDK, as OTLP over HTTP. Its environment variables
(`OTEL_*`) configure it. Its threads send what is queued here.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import ssl
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from random import getrandbits
from typing import Any, ClassVar, Final, NamedTuple, cast

import httpx
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Histogram, Observation
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.re import parse_env_headers

log = logging.getLogger(__name__)

Value = str | bool | int | float

_NAME: Final = "weft_gateway"
# vLLM has no name in the GenAI conventions.
_PROVIDER: Final = "vllm"
_NS: Final = 1_000_000_000
# Seconds after each attempt to send.
_PAUSES_S: Final = (1, 2, 4, 0)
# Seconds, of calls as the conventions want them.
_CALLS: Final = tuple(0.01 * 2**n for n in range(14))
_PROGRAMS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400)
# Clients name their agents: so many have metrics of their own.
_AGENTS: Final = 64
_COUNTED: Final = ("chat", "text_completion")
_OUTPUT: Final = "gen_ai.usage.output_tokens"
_TOKENS: Final = ("gen_ai.usage.input_tokens", _OUTPUT, "gen_ai.usage.cache_read.input_tokens")
_SHUTDOWN_S: Final = 2.0
_FIELDS: Final = {bool: "bool_value", int: "int_value", float: "double_value"}
_read: Final = TraceContextTextMapPropagator().extract


class Ids(NamedTuple):
    """A span in a trace. sampled: it is exported."""

    trace: int
    span: int
    sampled: bool


@dataclass(slots=True, eq=False)
class Ended:
    """A call or program that has ended. begun_ns: Unix time. phases: of a call: name, begin and end
    in seconds since its begin; None: a program. error: its type, "" for none.
    """

    name: str
    ids: Ids
    parent: Ids | None
    begun_ns: int
    seconds: float
    attributes: Mapping[str, Value]
    links: Sequence[Ids] = ()
    phases: Sequence[tuple[str, float, float]] | None = None
    error: str = ""
    # The SDK's queue takes what has a sampled context.
    context: ClassVar = SpanContext(1, 1, False, TraceFlags(TraceFlags.SAMPLED))


class Otel:
    """OpenTelemetry's providers, for one gateway. Nothing is global."""

    def __init__(self) -> None:
        self._provider = provider = TracerProvider(shutdown_on_exit=False)
        wanted = os.environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() != "none"
        readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if wanted else []
        self._meters = MeterProvider(readers, provider.resource, shutdown_on_exit=False)
        self._metrics = _Metrics(self._meters)
        self._exporter = _Exporter(provider.resource)
        self._processor = BatchSpanProcessor(self._exporter)

    def begin(self, parent: Ids | None, trace: int = 0, span: int = 0) -> Ids:
        """Return a new span below the parent's, which its client has sampled or not. None: the
        SDK's sampler decides. trace, span: their ids, 0 for random ones.
        """
        context = None
        if parent is not None:
            trace, flags = parent.trace, TraceFlags(int(parent.sampled))
            remote = SpanContext(trace, parent.span, True, flags)
            context = set_span_in_context(NonRecordingSpan(remote))
        trace = trace or getrandbits(128) or 1
        found = self._provider.sampler.should_sample(context, trace, _NAME).decision
        return Ids(trace, span or new_span(), found is Decision.RECORD_AND_SAMPLE)

    def export(self, ended: Ended) -> None:
        """Count a call or program, and queue its span. Never waits; the oldest ones are lost if the
        queue is full.
        """
        self._metrics.count(ended)
        if ended.ids.sampled:
            self._processor.on_end(cast(ReadableSpan, ended))

    async def aclose(self) -> None:
        """Export what is left."""

        def shut_down() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            self._meters.shutdown(_SHUTDOWN_S * 1000)

        work = asyncio.get_running_loop().run_in_executor(None, shut_down)
        if not (await asyncio.wait([work], timeout=_SHUTDOWN_S))[0]:
            # No collector answers: this ends the attempts.
            self._exporter.shutdown()


def read(headers: Iterable[tuple[bytes, bytes]]) -> Ids | None:
    """Return the client's span, None without a valid `traceparent`."""
    found = [value for name, value in headers if name == b"traceparent"]
    if not found:
        return None
    context = _read({"traceparent": found[0].decode("latin-1")})
    span = get_current_span(context).get_span_context()
    return Ids(span.trace_id, span.span_id, span.trace_flags.sampled) if span.is_valid else None


def new_span() -> int:
    """Return a random span id."""
    return getrandbits(64) or 1


class _Exporter(SpanExporter):
    """Sends spans, in the processor's thread. The SDK's exporter would take six times as much
    processor time to write them, an eighth of a short call's.
    """

    def __init__(self, resource: Resource) -> None:
        self._request = request = ExportTraceServiceRequest()
        of_resource = request.resource_spans.add(
            resource={"attributes": _pairs(resource.attributes)}
        )
        self._scope = of_resource.scope_spans.add()
        self._scope.scope.name, self._scope.scope.version = _NAME, version("weft-gateway")
        self._url = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "") or (
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].rstrip("/") + "/v1/traces"
        )
        headers = {**parse_env_headers(_option("HEADERS"), liberal=True)}
        headers["content-type"] = "application/x-protobuf"
        self._gzip = _option("COMPRESSION") == "gzip"
        if self._gzip:
            headers["content-encoding"] = "gzip"
        tls = ssl.create_default_context(cafile=_option("CERTIFICATE") or None)
        if own := _option("CLIENT_CERTIFICATE"):
            tls.load_cert_chain(own, _option("CLIENT_KEY") or None)
        timeout_s = float(_option("TIMEOUT") or 10)
        self._client = httpx.Client(headers=headers, timeout=timeout_s, verify=tls)
        self._stopped = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch, again after a while if the collector is away or busy."""
        self._scope.ClearField("spans")
        for ended in cast(Sequence[Ended], spans):
            _write(ended, self._scope.spans.add)
        body = self._request.SerializeToString()
        if self._gzip:
            body = gzip.compress(body)
        for pause_s in _PAUSES_S:
            try:
                answer = self._client.post(self._url, content=body)
                if answer.is_success:
                    return SpanExportResult.SUCCESS
                why = f"status {answer.status_code}"
            except httpx.HTTPError as error:
                why = f"{type(error).__name__}: {error}"
            if self._stopped.wait(pause_s):
                break
        log.warning("spans are lost: %s does not take them (%s)", self._url, why)
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Stop, also while a collector does not answer."""
        self._stopped.set()


def _option(name: str) -> str:
    """Return an option of OTLP: that of traces, or that of all signals."""
    found = os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}", "")
    return (found or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", "")).strip()


def _write(ended: Ended, add: Callable[..., Any]) -> None:
    """Add the span of a call or program, and those of its phases."""
    ids, parent, begun_ns = ended.ids, ended.parent, ended.begun_ns
    trace, own = ids.trace.to_bytes(16), ids.span.to_bytes(8)
    add(
        trace_id=trace,
        span_id=own,
        parent_span_id=b"" if parent is None else parent.span.to_bytes(8),
        name=ended.name,
        kind=Span.SPAN_KIND_INTERNAL if ended.phases is None else Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=begun_ns,
        end_time_unix_nano=begun_ns + int(ended.seconds * _NS),
        attributes=_pairs({"gen_ai.provider.name": _PROVIDER, **ended.attributes}),
        links=[
            {"trace_id": link.trace.to_bytes(16), "span_id": link.span.to_bytes(8)}
            for link in ended.links
        ],
        status={"code": Status.STATUS_CODE_ERROR} if ended.error else None,
    )
    for name, begun_s, ended_s in ended.phases or ():
        add(
            trace_id=trace,
            span_id=new_span().to_bytes(8),
            parent_span_id=own,
            name=name,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=begun_ns + int(min(begun_s, ended.seconds) * _NS),
            end_time_unix_nano=begun_ns + int(min(ended_s, ended.seconds) * _NS),
        )


def _pairs(attributes: Mapping[str, object]) -> Any:
    # Dictionaries take a third of the time that messages would.
    return [
        {"key": key, "value": {_FIELDS.get(type(value), "string_value"): value}}
        for key, value in attributes.items()
    ]


class _Metrics:
    """The metrics of the GenAI conventions, from the attributes of spans."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter(_NAME, version("weft-gateway"))

        def times(name: str, bounds: Sequence[float]) -> Histogram:
            return meter.create_histogram(name, "s", explicit_bucket_boundaries_advisory=bounds)

        call = "gen_ai.client.inference"
        self._duration = times(f"{call}.duration", _CALLS)
        self._first = times(f"{call}.time_to_first_chunk", _CALLS)
        self._program = times("gen_ai.invoke_agent.duration", _PROGRAMS)
        self._agents: set[str] = set()
        # By operation and model. Counters that are read cost a call nothing.
        self._used: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for name in _TOKENS:

            def used(_: CallbackOptions, name: str = name) -> Iterable[Observation]:
                for place, tokens in [*self._used.items()]:
                    plain = {**_plain(*place), "gen_ai.token.modality": "unknown"}
                    yield Observation(tokens[name], plain)

            short = name.removeprefix("gen_ai.usage.")
            meter.create_observable_counter(f"{call}.usage.{short}", [used], "{token}")

    def count(self, ended: Ended) -> None:
        """Count a call or program."""
        own: Mapping[str, Any] = ended.attributes
        operation = own["gen_ai.operation.name"]
        if ended.phases is None:
            agent = own.get("gen_ai.agent.name", "")
            if agent not in self._agents:
                agent = "other" if len(self._agents) >= _AGENTS else agent
                self._agents.add(agent)
            plain = _plain(operation, agent, "gen_ai.agent.name")
            self._program.record(ended.seconds, plain)
        elif operation in _COUNTED:
            # The models of refused calls get no series: clients choose their names.
            model = own.get("gen_ai.request.model", "") if "weft.replica" in own else ""
            plain, error = _plain(operation, model), ended.error
            self._duration.record(ended.seconds, {**plain, "error.type": error} if error else plain)
            first_s = own.get("gen_ai.response.time_to_first_chunk")
            output = own.get(_OUTPUT)
            if first_s:
                self._first.record(first_s, plain)
            if output is not None:
                sums = self._used[operation, model]
                for name in _TOKENS:
                    sums[name] += own[name]


def _plain(operation: str, name: str, kind: str = "gen_ai.request.model") -> dict[str, str]:
    found = {"gen_ai.operation.name": operation, "gen_ai.provider.name": _PROVIDER}
    return {**found, kind: name} if name else found
