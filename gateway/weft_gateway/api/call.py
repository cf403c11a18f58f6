"""Endpoints that run the model: read a request and pass it to `weft_gateway.calls`. Plain ASGI
without a framework, so that the body's bytes pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from weft_gateway.api.auth import Authenticator
from weft_gateway.api.body import (
    call_body,
    check_media_names,
    is_skimmed,
    light_body,
    text_bytes,
)
from weft_gateway.api.failures import Failures
from weft_gateway.api.history import History
from weft_gateway.api.http import read_body
from weft_gateway.api.keep_alive import KeepAlives
from weft_gateway.calls.body_bytes import BodyBytes, HeldBytes
from weft_gateway.calls.call import BATCH, Call, Failed
from weft_gateway.calls.client import Disconnect, DisconnectMonitor
from weft_gateway.calls.identify import Identifier
from weft_gateway.calls.observers import Observers, notify
from weft_gateway.calls.path import CallPath
from weft_gateway.calls.turns import LIGHT_BYTES, Turns
from weft_gateway.config import Settings
from weft_gateway.constants import Constants
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.engine.errors import ClientGone
from weft_gateway.engine.headers import query_of, sane_request_id
from weft_gateway.errors import ApiError
from weft_gateway.overlap.dispatch import HEADER as DISPATCH_HEADER
from weft_gateway.overlap.dispatch import opted_in
from weft_gateway.policies.hints import read_hints
from weft_gateway.programs.aliases import THREAD
from weft_gateway.programs.transcripts import Transcripts
from weft_gateway.runs.batch_calls import Answered, Request
from weft_gateway.runs.batch_lines import refusal
from weft_gateway.runs.batch_results import Answer

# In the scope of a request: the `Connection` that keeps answers which are not stored.
CONNECTION: Final = "weft.connection"


@dataclass(slots=True, eq=False)
class CallEndpoint:
    """Serves the calls of all model endpoints over HTTP."""

    auth: Authenticator
    identifier: Identifier
    history: History
    path: CallPath
    observers: Observers
    disconnects: DisconnectMonitor
    keep_alives: KeepAlives
    turns: Turns
    bodies: BodyBytes
    transcripts: Transcripts
    failures: Failures
    next_call: Callable[[], str]
    settings: Settings
    constants: Constants

    async def __call__(
        self,
        endpoint: Endpoint,
        scope: Scope,
        receive: Receive,
        send: Send,
        program: str | None = None,
        prefill_id: str = "",
    ) -> None:
        """Serve one request. program: the program id from the path. prefill_id: handle of a prefill
        that the request extends.
        """
        begun = perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        call_id = self.next_call()
        request_id = sane_request_id(headers.get(b"x-request-id"))
        if request_id is None:
            request_id = b"req" + call_id.removeprefix("call").encode()
        hooks = self.observers.of(endpoint)
        call = Call(call_id, endpoint, scope["headers"], request_id, begun, hooks)
        if program is not None:
            call.program_in_path = program
        if prefill_id:
            call.prefill_id = prefill_id
        try:
            try:
                # Authenticate before a large body is read.
                call.caller = self.auth.caller(headers, program)
                call.held = HeldBytes(self.bodies, call.caller.tenant)
                call.connection = scope.get(CONNECTION)
                # Only the call refers to the body, so that it can drop it.
                pending = self._read(
                    call,
                    await read_body(headers, receive, self.settings.max_body_bytes, call.held),
                )
                if pending is not None:
                    await pending
                if endpoint.chained and (whole := self.history.complete(call)) is not None:
                    await self._read_whole(call, await whole)
                call.target = endpoint.path.encode() + query_of(scope["query_string"])
                call.hints = read_hints(
                    call.body, headers, b"" if call.skimmed else call.text, call.known
                )
                call.tool_dispatch = opted_in(headers.get(DISPATCH_HEADER), call.body.get("weft"))
                pending = self.identifier.identify(call)
                if pending is not None:
                    await pending
                client = self.disconnects.expect(receive)
                keep_alive = self.keep_alives.expect(call, scope, send)
                if keep_alive is not None:
                    send = keep_alive.send
                try:
                    await self.path.serve(call, client, send)
                finally:
                    self.disconnects.done(client)
                    self.keep_alives.done(keep_alive)
            except Exception as error:
                call.error = _failed(self.failures.known(error))
                raise
            finally:
                pending = notify(hooks.ended, call)
                if pending is not None:
                    await pending
        except ClientGone:
            return
        except Exception as error:
            await self.failures.respond(scope, send, error, request_id)

    async def inside(self, request: Request, client: Disconnect) -> Answered:
        """Serve a request that the gateway makes on behalf of a tenant. Raises ClientGone if
        `client` was ended.
        """
        call_id = self.next_call()
        request_id = b"req" + call_id.removeprefix("call").encode()
        endpoint = BATCH[request.path]
        headers = [(b"content-type", b"application/json"), (THREAD, request.thread.encode())]
        hooks = self.observers.of(endpoint)
        call = Call(call_id, endpoint, headers, request_id, perf_counter(), hooks)
        call.program_in_path, call.plan = request.program, request.plan
        answer = _Kept()
        try:
            try:
                call.caller = self.auth.caller_of(request.tenant)
                pending = self._read(call, request.body)
                if pending is not None:
                    await pending
                if endpoint.chained and (whole := self.history.complete(call)) is not None:
                    await self._read_whole(call, await whole)
                wrong = refusal(call.body)
                if wrong:
                    raise ApiError(400, "unsupported_in_batch", wrong)
                call.target = endpoint.path.encode()
                hints = read_hints(call.body, {}, b"" if call.skimmed else call.text, call.known)
                # A request of a batch cannot come before calls that a client waits for.
                call.hints = replace(hints, priority=min(hints.priority or 0, 0))
                pending = self.identifier.identify(call)
                if pending is not None:
                    await pending
                await self.path.serve(call, client, answer.send)
            except Exception as error:
                call.error = _failed(self.failures.known(error))
                raise
            finally:
                pending = notify(hooks.ended, call)
                if pending is not None:
                    await pending
        except ClientGone:
            raise
        except Exception as error:
            shown = self.failures.shown(error, request_id, f"a batch's {endpoint.path}")
            body = shown.body(endpoint.errors, request_id)
            return Answered(Answer(shown.status, body, request_id.decode()), shown)
        found = Answer(answer.status, b"".join(answer.parts), request_id.decode())
        return Answered(found, None, call.report, call.usage)

    def _read(self, call: Call, raw: bytes) -> Awaitable[None] | None:
        """Parse the body of a call. Returns an awaitable for a large one. Raises ApiError."""
        if len(raw) > LIGHT_BYTES:
            call.raw = raw
            return self._read_large(call)
        call.raw, call.body = light_body(raw)
        call.reading = None
        call.size = len(raw)
        return None

    async def _read_whole(self, call: Call, raw: bytes) -> None:
        pending = self._read(call, raw)
        if pending is not None:
            await pending

    async def _read_large(self, call: Call) -> None:
        most, items, tenant = (
            self.constants.read_body_bytes,
            self.constants.read_body_messages,
            call.caller.tenant,
        )
        transcripts = self.transcripts if call.endpoint.is_text else None
        call.raw, call.body, call.reading = await call_body(
            call.raw, most, items, self.turns, tenant, transcripts
        )
        call.size = len(call.raw)
        call.skimmed = is_skimmed(call.body)
        if call.skimmed and call.endpoint.media_names:
            await check_media_names(call.raw, self.turns, tenant)
        if call.skimmed:
            call.text_bytes = await text_bytes(call.raw, self.turns, tenant)


def _failed(shown: ApiError | None) -> Failed:
    """Return the record of an error. shown: what the client gets, None for an unexpected error."""
    return Failed() if shown is None else Failed(shown.status, shown.code)


class _Kept:
    """Keeps an answer instead of sending it."""

    __slots__ = ("parts", "status")

    def __init__(self) -> None:
        self.status = 0
        self.parts: list[bytes] = []

    async def send(self, message: Message) -> None:
        """Take one ASGI message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.parts.append(message["body"])
