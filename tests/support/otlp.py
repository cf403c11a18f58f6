"""A collector of OpenTelemetry: it receives OTLP, protobuf over HTTP, and keeps it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Span:
    """A received span. Ids are in hexadecimal, times in seconds; kind and status are names."""

    name: str
    trace: str
    id: str
    parent: str
    links: list[str]
    kind: str
    status: str
    begun_s: float
    ended_s: float
    attributes: dict[str, Any]


@dataclass
class Collector:
    """What arrived, as (path, body). keys: of its senders. refusals: the next answers' statuses."""

    url: str
    bodies: list[tuple[str, bytes]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    refusals: list[int] = field(default_factory=list)

    def spans(self) -> list[Span]:
        """Return all spans, in the order of their starts."""
        found = []
        for path, body in self.bodies:
            if path == "/v1/traces":
                for of in ExportTraceServiceRequest.FromString(body).resource_spans:
                    found += [_span(one) for scope in of.scope_spans for one in scope.spans]
        return sorted(found, key=lambda span: span.begun_s)

    def one(self, name: str, **attributes: Any) -> Span:
        """Return the span of this name with these attributes; `_` stands for `.` after `weft`."""
        wanted = {f"weft.{key}": value for key, value in attributes.items()}.items()
        (found,) = [
            span for span in self.spans() if span.name == name and wanted <= span.attributes.items()
        ]
        return found

    def children(self, span: Span) -> list[str]:
        """Return the names of the spans below this one, in the order of their starts."""
        return [one.name for one in self.spans() if one.parent == span.id]

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], float]]]:
        """Return the latest points by metric: attributes, with the sum or the observations."""
        found: dict[str, list[tuple[dict[str, Any], float]]] = {}
        for path, body in self.bodies:
            if path != "/v1/metrics":
                continue
            for of in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in [one for scope in of.scope_metrics for one in scope.metrics]:
                    found[metric.name] = [
                        (_attributes(point.attributes), point.count)
                        for point in metric.histogram.data_points
                    ] or [
                        (_attributes(point.attributes), point.as_int)
                        for point in metric.sum.data_points
                    ]
        return found


def _span(span: Any) -> Span:
    status = {0: "unset", 2: "error"}[span.status.code]
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        [link.span_id.hex() for link in span.links],
        {0: "?", 1: "internal", 2: "server", 3: "client"}[span.kind],
        status,
        span.start_time_unix_nano / 1e9,
        span.end_time_unix_nano / 1e9,
        _attributes(span.attributes),
    )


def _attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.headers["content-type"] == "application/x-protobuf"
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            status = found.refusals.pop() if found.refusals else 200
            if status == 200:
                found.keys.add(self.headers["authorization"])
                found.bodies.append((self.path, body))
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
