"""Relays an engine's answer to the client. Sans-I/O: takes the engine's head and bytes, and returns
the client's head and bytes, and the next step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from weft_gateway import errors
from weft_gateway.calls.call import Call, Failed, Tap
from weft_gateway.calls.spending import headers as budget_headers
from weft_gateway.calls.stored import with_previous
from weft_gateway.engine.errors import (
    ReplicaBadAnswer,
    ReplicaError,
    ReplicaSaid,
    ReplicaWrongCall,
)
from weft_gateway.engine.headers import for_client, header_safe
from weft_gateway.engine.response import Headers
from weft_gateway.engine.shapes import Fault, fault_of, last_usage
from weft_gateway.engine.sse import StreamFilter, read_report
from weft_gateway.errors import ApiError
from weft_gateway.model import Outcome
from weft_gateway.overlap.events import EventReader

# Header of a request that asks for the saved seconds, and of the answer that has them.
SAVED_HEADER: Final = b"x-weft-saved-s"
_STREAM: Final = b"text/event-stream"
_LOCAL: Final = (b"x-weft-table", b"local")
# The content types of model endpoints: JSON, or the vectors of embeddings as plain bytes.
_PLAIN: Final = b"application/"
_SEQUENCE: Final = re.compile(rb'"sequence_number"\s*:\s*(\d{1,9})\b')


def start(call: Call, status: int, head: Headers) -> tuple[Headers, bool]:
    """Take the engine's head. Returns the headers for the client, and whether the answer is a
    stream. Raises ReplicaBadAnswer for an answer that no engine sends; ReplicaWrongCall.
    """
    call.status = status
    headers, text = for_client(head, is_error=status >= 400)
    if text is not None:
        call.report = read_report(text, call.id)
        call.dropped += call.report is None
    headers += (
        (b"x-weft-program", header_safe(call.identity.key.program)),
        (b"x-weft-replica", call.replica.encode()),
        (b"x-request-id", call.request_id),
    )
    if call.endpoint.errors == "anthropic":
        headers.append((b"request-id", call.request_id))
    if call.admitted is not None:
        # An attached server may have its own limits; the client gets one set of headers.
        headers = [pair for pair in headers if not pair[0].startswith(b"x-ratelimit-")]
        headers += call.admitted.headers
    if call.local:
        headers.append(_LOCAL)
    call.is_stream = check_head(status, headers)
    if call.is_stream and call.balances:
        headers += budget_headers(call.balances)
    return headers, call.is_stream


def check_head(status: int, headers: Headers) -> bool:
    """Whether the answer is a stream: an error never is. Raises ReplicaBadAnswer for a status or
    content type that an engine's endpoint never returns.
    """
    if not (200 <= status <= 204 or 400 <= status < 600):
        raise ReplicaBadAnswer(f"The replica answered with the unexpected status {status}.")
    if status >= 400:
        return False
    kind = b""
    for name, value in headers:
        if name == b"content-type":
            kind = value.lower()
            break
    if kind.startswith(_STREAM):
        return True
    if kind and not kind.startswith(_PLAIN):
        raise ReplicaBadAnswer("The replica's answer has an unexpected content type.")
    return False


def check_body(status: int, body: bytes) -> None:
    """Raise ReplicaBadAnswer for an empty answer that is no error."""
    if status < 400 and not body:
        raise ReplicaBadAnswer("The replica's answer is empty.")


def whole(call: Call, body: bytes) -> bytes:
    """Take a non-streamed answer. Returns its body for the client. Raises ReplicaBadAnswer if only
    a stream can follow the early head.
    """
    if call.early and call.good:
        raise ReplicaBadAnswer("The replica did not answer with a stream.")
    if not call.good:
        error = _said(call, fault_of(body, call.status))
        return error.body(call.endpoint.errors, call.request_id)
    if call.continued:
        body = with_previous(body, call.continued)
    call.outcome, call.body_out = Outcome.OK, body
    if call.report is None:
        call.answer_usage = last_usage(body)
    return body


class Step(Enum):
    """The next step besides sending the bytes. END_SOON: the client has its last frame, and the
    engine has only its report left to send. CLOSE: the report has arrived. OVER: the answer has
    ended.
    """

    END_SOON = 1
    CLOSE = 2
    OVER = 3


class StreamRelay:
    """Relays one stream. `step`: the next step, None: read on."""

    __slots__ = (
        "_before",
        "_call",
        "_filter",
        "_head",
        "_last",
        "_looked_at",
        "_size",
        "_taps",
        "_unsent",
        "step",
    )

    def __init__(self, call: Call, head: Callable[[Call], Sequence[Tap]]) -> None:
        """head: called on the first bytes; returns the taps for them."""
        self.step: Step | None = None
        self._call = call
        self._head: Callable[[Call], Sequence[Tap]] | None = head
        self._filter = StreamFilter(call.endpoint.terminals, call.id)
        self._taps: Sequence[Tap] = ()
        self._looked_at = False
        self._size = 0
        # The bytes passed on last and before, and those not passed on because the stream broke off.
        self._before = self._last = self._unsent = b""

    def feed(self, data: bytes, complete: bool) -> bytes:
        """Take bytes of the engine, b"" or `complete` at the end of its answer. Returns the bytes
        for the client. Raises ReplicaError if the stream is malformed, ends early, or ends with an
        error of the engine; then call `broken`.
        """
        if self._head is not None:
            self._taps, self._head = self._head(self._call), None
            call = self._call
            chained = call.endpoint.chained
            self._looked_at = bool(self._taps) or call.recorded is not None or chained
        stream = self._filter
        passed = stream.feed(data)
        if passed:
            if self._looked_at:
                passed = self._look(passed)
            self._before, self._last = self._last, passed
        if complete or not data:
            self._unsent = passed
            rest = stream.finish()
            if stream.error:
                raise _failure(stream.error)
            if rest:
                rest = self._look(rest) if self._looked_at else rest
                passed += rest
            self._unsent = b""
            self._end(Outcome.OK, Step.OVER, rest)
        elif stream.ended:
            if stream.report is None:
                self.step = Step.END_SOON
            elif stream.error:
                self._unsent = passed
                raise _failure(stream.error)
            else:
                self._end(Outcome.OK, Step.CLOSE)
        return passed

    def broken(self, error: ReplicaError) -> tuple[bytes, ReplicaError]:
        """Return the last bytes for the client after the engine failed within the stream, and the
        error: what the engine said before `error`, if it said something. The outcome is OK if the
        client has its whole answer.
        """
        call, stream = self._call, self._filter
        rest = stream.cut()
        wrong = isinstance(error, ReplicaWrongCall)
        if stream.error and not wrong:
            error = _failure(stream.error)  # Whatever came after it.
        elif stream.ended and not wrong:
            self._end(Outcome.OK, Step.OVER, rest)
            return self._unsent + rest, error
        self._end(Outcome.ERROR, Step.OVER)
        if wrong:
            call.disowned, rest = True, b""
        failure = errors.replica_failed(error)
        if isinstance(error, ReplicaSaid):
            failure = _said(call, error.fault)
        call.error = Failed(failure.status, failure.code or error.code)
        passed = self._unsent + rest
        if call.endpoint.chained:
            numbers = _SEQUENCE.findall(self._last + passed)
            after = int(numbers[-1]) + 1 if numbers else 0
            return passed + failure.response_events(call.response_id, after), error
        return passed + failure.event(call.endpoint.errors, call.request_id), error

    def _look(self, data: bytes) -> bytes:
        recorded = self._call.recorded
        if recorded is not None:
            self._size += len(data)
            if self._size <= self._call.record_limit:
                recorded.append(data)
            else:
                recorded.clear()
        for tap in self._taps:
            data = tap(data)
        return data

    def _end(self, outcome: Outcome, step: Step, rest: bytes = b"") -> None:
        if self.step is not Step.CLOSE:  # Otherwise the call is already closed.
            call, stream = self._call, self._filter
            call.outcome, call.report = outcome, stream.report
            call.dropped += stream.dropped
            if stream.report is None and outcome is Outcome.OK:
                # The usage comes with the terminal frame, or in the frame before it.
                call.answer_usage = last_usage(b"".join((self._before, self._last, rest)))
        self.step = step


def _failure(frame: bytes) -> ReplicaSaid:
    """Return the error that a frame of a stream says."""
    events = EventReader().feed(frame + b"\n\n")
    return ReplicaSaid(fault_of(events[0].data if events else b""))


def _said(call: Call, fault: Fault) -> ApiError:
    """Return an engine's error of a call."""
    tokens = call.placed.prompt_tokens if call.placed is not None else 0
    return errors.from_engine(fault, call.endpoint.errors, call.endpoint.prompt, tokens)


def whole_headers(call: Call, headers: Headers, body: bytes) -> Headers:
    """Return the headers of a non-streamed answer, once its call is closed."""
    if call.saved_s and _asks(call):
        headers.append((SAVED_HEADER, _saved(call.saved_s)))
    if call.balances:
        headers += budget_headers(call.balances)
    headers.append((b"content-length", str(len(body)).encode()))
    return headers


def last_bytes(call: Call, last: bytes) -> bytes:
    """Return the last bytes of a stream, once its call is closed. The saved seconds are a comment
    before them, because the headers have been sent.
    """
    if call.saved_s and _asks(call):
        return b": %b %b\n\n%b" % (SAVED_HEADER, _saved(call.saved_s), last)
    return last


def _asks(call: Call) -> bool:
    return any(name == SAVED_HEADER for name, _ in call.headers)


def _saved(saved_s: Mapping[str, float]) -> bytes:
    """Format seconds by overlap: `prefill=0.25, dispatch=0.1`."""
    return ", ".join(f"{name}={seconds:.6f}" for name, seconds in saved_s.items()).encode()
