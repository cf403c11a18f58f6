"""A replica's answer on its way to the client. Bytes pass as they are; the call is closed in the
process table before the client can know that its answer is complete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from time import perf_counter
from typing import Final

import orjson
from weft_engine.wire import CallReport

from weft_gateway.api import errors
from weft_gateway.api.errors import ApiError
from weft_gateway.api.http import Send
from weft_gateway.api.ledger import OpenCall
from weft_gateway.api.prefills import PrefillDesk
from weft_gateway.api.request import Request
from weft_gateway.api.services import Services
from weft_gateway.api.watch import Watch, remember, tell_whole
from weft_gateway.engine.errors import (
    ReplicaBadAnswer,
    ReplicaError,
    ReplicaFault,
    ReplicaTimeout,
    ReplicaWrongCall,
)
from weft_gateway.engine.headers import for_client, header_safe
from weft_gateway.engine.pool import Exchange
from weft_gateway.engine.registry import Replica
from weft_gateway.engine.response import Headers
from weft_gateway.engine.sse import StreamFilter, read_report
from weft_gateway.model import Outcome, ProgramKey
from weft_gateway.overlap.answers import MAX_ANSWER_BYTES
from weft_gateway.programs.identity import MAIN_THREAD
from weft_gateway.programs.ids import RESPONSE_ID, is_response_id

# Asked for by a request with this header, in the answer.
SAVED_HEADER: Final = b"x-weft-saved-s"
_STREAM: Final = b"text/event-stream"
_LOCAL: Final = (b"x-weft-table", b"local")
# What model endpoints answer with: JSON, or the vectors of embeddings as plain bytes.
_PLAIN: Final = b"application/"
# At the beginning of a stream, the id of the first event's response. Engines repeat the request in
# that event: a client can write `"id": "resp_..."` there, but not before the response's own id.
_STORED_STREAM: Final = re.compile(
    rb"(?:(?:event|id)?:[^\r\n]*\r?\n|\r?\n)*data:\s*\{"
    rb'(?:\s*"(?:type|sequence_number)"\s*:\s*(?:"[\w.]*"|\d+)\s*,)*'
    rb'\s*"response"\s*:\s*\{(?:\s*"object"\s*:\s*"\w*"\s*,)?\s*"id"\s*:\s*"(%b)"'
    % RESPONSE_ID.encode()
)
_SEQUENCE: Final = re.compile(rb'"sequence_number"\s*:\s*(\d{1,9})\b')
# Once the client's last frame has come, the engine has only its report left to send.
_END_WITHIN_S: Final = 1.0


class Relay:
    """Passes one answer on, after its head has arrived."""

    __slots__ = (
        "_call",
        "_exchange",
        "_heard",
        "_metrics",
        "_replica",
        "_request",
        "_response_id",
        "_s",
        "_stored",
        "_watch",
    )

    def __init__(
        self,
        services: Services,
        request: Request,
        call: OpenCall,
        replica: Replica,
        exchange: Exchange,
        desk: PrefillDesk,
    ) -> None:
        self._s = services
        self._request = request
        self._call = call
        self._replica = replica
        self._exchange = exchange
        self._metrics = services.metrics.bind(call.endpoint, replica.name)
        self._watch: Watch | None = None
        if Watch.wanted(services, call.key, request):
            self._watch = Watch(services, desk, call.key, request)
        # Of a stream, for lineage.
        self._heard: list[bytes] | None = None if request.asked is None else []
        self._stored: str | None = None
        self._response_id = ""

    async def run(self, send: Send) -> None:
        """Relay the answer and close the call.

        Raises ReplicaError only where nothing has been sent to the client; ClientGone when it left.
        """
        headers, text = for_client(self._exchange.headers)
        report = None
        if text is not None:
            report = read_report(text, self._call.call)
            if report is None:
                self._s.metrics.dropped.labels(self._replica.name).inc()
        headers += (
            (b"x-weft-program", header_safe(self._call.key.program)),
            (b"x-weft-replica", self._replica.name.encode()),
            (b"x-request-id", self._request.request_id),
        )
        if self._request.admitted is not None:
            # An attached server may have limits of its own; the client gets one set of headers.
            headers = [pair for pair in headers if not pair[0].startswith(b"x-ratelimit-")]
            headers += self._request.admitted.headers
        if self._call.local:
            headers.append(_LOCAL)
        if check_head(self._exchange.status, headers):
            await self._stream(headers, send)
        else:
            await self._plain(headers, report, send)
        self._metrics.latency.observe(perf_counter() - self._request.begun)

    async def _plain(self, headers: Headers, report: CallReport | None, send: Send) -> None:
        exchange, call = self._exchange, self._call
        body = await exchange.read_all()
        status = exchange.status
        good = status < 400
        check_body(status, body)
        exchange.close()
        self._first_byte(status)
        self._mark(status)
        if status == 404 and self._request.holder:  # The replica has been restarted.
            raise errors.previous_response_not_found(
                self._request.body["previous_response_id"], 404
            )
        if not good:
            body = errors.engine_error(status, body, self._request.endpoint.errors)
        if good and self._request.endpoint.chained:
            response_id = _plain_id(body)
            self._stores(response_id)
            await self._remember()
            if response_id and self._request.body.get("background") is True:
                self._hold_place(response_id)
        if good and call.key in self._s.listeners:
            tell_whole(self._s, call.key, self._request, body)
        if self._request.asked is not None:
            await remember(self._s, self._request, body if good else None, False)
        await self._s.ledger.close(call, Outcome.OK if good else Outcome.ERROR, report)
        if self._watch is not None and good:
            await self._watch.closed(body, report)
        if call.saved_s and self._asks_what_was_saved():
            headers.append((SAVED_HEADER, _saved(call.saved_s)))
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, headers: Headers, send: Send) -> None:
        exchange = self._exchange
        good = exchange.status < 400
        terminals = self._request.endpoint.terminals if good else ()
        stream = StreamFilter(terminals, self._call.call)
        watch, heard, size = self._watch, self._heard, 0
        await send({"type": "http.response.start", "status": exchange.status, "headers": headers})
        begun = False
        passed = sent = b""
        try:
            while True:
                data = await exchange.read()
                if not begun:
                    self._first(data)
                    begun = True
                passed = stream.feed(data)
                if heard is not None:
                    size += len(passed)
                    if size <= MAX_ANSWER_BYTES:
                        heard.append(passed)
                    else:
                        heard.clear()
                if watch is not None:
                    passed = watch.feed(passed)
                if not data or exchange.complete:
                    rest = stream.finish()
                    if heard is not None and size <= MAX_ANSWER_BYTES:
                        heard.append(rest)
                    passed += rest if watch is None else watch.feed(rest)
                    break
                if stream.ended:
                    if stream.report is None:
                        exchange.expect_end_within(_END_WITHIN_S)
                    elif not self._call.closed:
                        passed = await self._close(stream, Outcome.OK) + passed
                if passed:
                    await send({"type": "http.response.body", "body": passed, "more_body": True})
                    sent, passed = passed, b""
            outcome = Outcome.OK if good else Outcome.ERROR
            self._mark(exchange.status)
        except ReplicaError as error:
            exchange.cancel(error)
            if isinstance(error, ReplicaWrongCall):
                await self._disown()
            rest, outcome = self._broken(stream, error, sent + passed)
            passed += rest
        exchange.close()
        passed = await self._close(stream, outcome) + passed
        await send({"type": "http.response.body", "body": passed})

    def _broken(
        self, stream: StreamFilter, error: ReplicaError, last: bytes
    ) -> tuple[bytes, Outcome]:
        """The last bytes for the client, and the outcome, after the replica failed mid-stream.
        last: what the client got last."""
        rest = stream.cut()
        registry, name = self._s.registry, self._replica.name
        tenant = self._call.key.tenant
        if isinstance(error, ReplicaWrongCall):
            rest = b""
        elif stream.ended:  # The client has its whole answer.
            registry.succeeded(name, tenant)
            if not isinstance(error, ReplicaTimeout):
                registry.suspicion.set()
            return rest, Outcome.OK
        self._s.metrics.error(error.code)
        registry.failed(name, error, tenant)
        told = ApiError(error.status, error.code, str(error))
        if self._request.endpoint.chained:
            numbers = _SEQUENCE.findall(last + rest)
            after = int(numbers[-1]) + 1 if numbers else 0
            return rest + told.response_events(self._response_id, after), Outcome.ERROR
        return rest + told.event(self._request.endpoint.errors), Outcome.ERROR

    async def _close(self, stream: StreamFilter, outcome: Outcome) -> bytes:
        """Close the call, once. Returns what is to be told before the client's last frame."""
        if self._call.closed:
            return b""
        if self._stored is not None:
            await self._remember()
        if self._request.asked is not None:
            raw = b"".join(self._heard or ()) if outcome is Outcome.OK else None
            await remember(self._s, self._request, raw, True)
        report = stream.report
        if stream.dropped:
            self._s.metrics.dropped.labels(self._replica.name).inc(stream.dropped)
        await self._s.ledger.close(self._call, outcome, report)
        if self._watch is not None:
            self._s.ledger.dispatched(self._call, self._watch.ahead_s())
            if outcome is Outcome.OK:
                await self._watch.closed(None, report)
        return self._told_what_was_saved()

    def _mark(self, status: int) -> None:
        """Tell the registry of a whole answer. What the replica does not implement (501) is no
        fault of its."""
        name, tenant = self._replica.name, self._call.key.tenant
        if status < 500 or status == 501:
            self._s.registry.succeeded(name, tenant)
        else:
            fault = ReplicaFault(f"The replica answered {status}.")
            self._s.registry.failed(name, fault, tenant)

    def _first(self, data: bytes) -> None:
        self._first_byte(self._exchange.status)
        if self._request.endpoint.chained:
            found = _STORED_STREAM.match(data)
            if found:
                self._response_id = found[1].decode()
                self._stores(self._response_id)

    def _first_byte(self, status: int) -> None:
        seconds = perf_counter() - self._request.begun
        self._metrics.first_byte.observe(seconds)
        if self._call.receipt is not None:
            self._call.receipt.first_byte_s = seconds
            self._call.receipt.status = status

    def _asks_what_was_saved(self) -> bool:
        return any(name == SAVED_HEADER for name, _ in self._request.headers)

    def _told_what_was_saved(self) -> bytes:
        """A comment before a stream's last frame: by then its headers have gone."""
        if not (self._call.saved_s and self._asks_what_was_saved()):
            return b""
        return b": %b %b\n\n" % (SAVED_HEADER, _saved(self._call.saved_s))

    def _stores(self, response_id: str | None) -> None:
        """The replica stores this answer, unless the client did not want that."""
        if response_id and self._request.body.get("store") is not False:
            self._stored = response_id
            # A client may go on before the stream has ended.
            key, thread = self._continued_as()
            self._s.chains.record(key, response_id, self._replica.name, thread)

    async def _remember(self) -> None:
        """Before the client can know that its answer is complete, every gateway can find it."""
        stored, self._stored = self._stored, None
        if stored is not None:
            key, thread = self._continued_as()
            await self._s.chains.remember(key, stored, self._replica.name, thread)

    def _hold_place(self, response_id: str) -> None:
        """The engine goes on working: the call keeps its place among its tenant's."""
        background, admitted = self._s.background, self._request.admitted
        if background is not None and admitted is not None:
            self._request.admitted = None
            background.hold(response_id, self._replica, admitted)

    async def _disown(self) -> None:
        """The answer was not this call's, and nor is its id."""
        self._stored = None
        if self._response_id:
            await self._s.chains.forget(self._call.key.tenant, self._response_id)

    def _continued_as(self) -> tuple[ProgramKey, str]:
        """The program and the thread of a call that goes on from this answer by its id."""
        thread = self._request.identity.thread
        return self._call.key, "" if thread == MAIN_THREAD else thread


def _saved(saved_s: Mapping[str, float]) -> bytes:
    """Seconds by overlap: `prefill=0.25, dispatch=0.1`."""
    return ", ".join(f"{name}={seconds:.6f}" for name, seconds in saved_s.items()).encode()


def _content_type(headers: Headers) -> bytes:
    for name, value in headers:
        if name == b"content-type":
            return value.lower()
    return b""


def check_head(status: int, headers: Headers) -> bool:
    """Whether the answer is a stream. ReplicaBadAnswer for a status, or a content type, that an
    engine's endpoint never has. Errors pass."""
    if not (200 <= status <= 204 or 400 <= status < 600):
        raise ReplicaBadAnswer(f"The replica answered {status}, as no engine does.")
    kind = _content_type(headers)
    if kind.startswith(_STREAM):
        return True
    if status < 400 and kind and not kind.startswith(_PLAIN):
        raise ReplicaBadAnswer("The replica's answer is of a type that no engine answers with.")
    return False


def check_body(status: int, body: bytes) -> None:
    """ReplicaBadAnswer for an answer that is empty, and no error."""
    if status < 400 and not body:
        raise ReplicaBadAnswer("The replica's answer is empty.")


def _plain_id(body: bytes) -> str | None:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    found = parsed.get("id") if isinstance(parsed, dict) else None
    return found if isinstance(found, str) and is_response_id(found) else None
