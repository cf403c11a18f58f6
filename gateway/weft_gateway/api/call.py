"""Endpoints that run the model: read a request and pass it to `weft_gateway.calls`. Plain ASGI
without a framework, so that the body's bytes pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from starlette.types import Receive, Scope, Send

from weft_gateway.api.auth import Authenticator
from weft_gateway.api.body import call_body, check_media_names, is_skimmed, light_body
from weft_gateway.api.failures import Failures
from weft_gateway.api.http import read_body
from weft_gateway.calls.call import Call
from weft_gateway.calls.client import DisconnectMonitor
from weft_gateway.calls.identify import Identifier
from weft_gateway.calls.observers import Observers, notify
from weft_gateway.calls.path import CallPath
from weft_gateway.calls.turns import LIGHT_BYTES, Turns
from weft_gateway.config import Settings
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.engine.errors import ClientGone
from weft_gateway.engine.headers import query_of, sane_request_id
from weft_gateway.overlap.dispatch import HEADER as DISPATCH_HEADER
from weft_gateway.overlap.dispatch import opted_in
from weft_gateway.policies.hints import read_hints


@dataclass(slots=True, eq=False)
class CallEndpoint:
    """Serves the calls of all model endpoints over HTTP."""

    auth: Authenticator
    identifier: Identifier
    path: CallPath
    observers: Observers
    disconnects: DisconnectMonitor
    turns: Turns
    failures: Failures
    next_call: Callable[[], str]
    settings: Settings

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
                call.caller = caller = self.auth.caller(headers)
                raw = await read_body(headers, receive, self.settings.max_body_bytes)
                if len(raw) <= LIGHT_BYTES:
                    raw, body = light_body(raw)
                else:
                    most, items = self.settings.read_body_bytes, self.settings.read_body_messages
                    raw, body = await call_body(raw, most, items, self.turns, caller.tenant)
                    call.skimmed = is_skimmed(body)
                    if call.skimmed and endpoint.media_names:
                        await check_media_names(raw, self.turns, caller.tenant)
                call.raw, call.body = raw, body
                call.target = endpoint.path.encode() + query_of(scope["query_string"])
                call.hints = read_hints(body, headers, b"" if call.skimmed else raw)
                call.tool_dispatch = opted_in(headers.get(DISPATCH_HEADER), body.get("weft"))
                pending = self.identifier.identify(call)
                if pending is not None:
                    await pending
                client = self.disconnects.expect(receive)
                try:
                    await self.path.serve(call, client, send)
                finally:
                    self.disconnects.done(client)
            except Exception as error:
                call.error = self.failures.known(error) or error
                raise
            finally:
                pending = notify(hooks.ended, call)
                if pending is not None:
                    await pending
        except ClientGone:
            return
        except Exception as error:
            await self.failures.respond(scope, send, error, endpoint.errors, request_id)
