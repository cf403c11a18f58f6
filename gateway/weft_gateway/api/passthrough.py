"""Routes of the engine that are not calls of a program: token counts, stored responses.

They go to a replica that takes calls. A stored response lives on the replica that made it, and
exists for the tenant whose call made it only: engines know no tenants. The path that an engine sees
is one of the few below, never a client's own bytes.
"""

from __future__ import annotations

import re
from typing import Final

from weft_gateway.api import errors
from weft_gateway.api.errors import ApiError
from weft_gateway.api.http import Departure, Receive, Scope, Send, read_body, respond
from weft_gateway.api.relay import check_body, check_head
from weft_gateway.api.services import Services
from weft_gateway.engine.endpoints import ErrorShape
from weft_gateway.engine.errors import ConnectFailed, ReplicaError
from weft_gateway.engine.headers import for_client, for_engine, query_of
from weft_gateway.engine.pool import Exchange
from weft_gateway.engine.registry import Replica
from weft_gateway.programs.ids import is_response_id
from weft_gateway.programs.table import TableUnavailable

# What can be done with a stored response, by the end of its path.
_RESPONSE = re.compile(rb"/v1/responses/([^/]+)(/cancel|/input_items)?")
_RESPONSE_METHODS: Final = {
    None: ("GET", "DELETE"),
    b"/cancel": ("POST",),
    b"/input_items": ("GET",),
}
_ANTHROPIC: Final = b"/v1/messages/"
_METHODS: Final = {
    b"/v1/messages/count_tokens": ("POST",),
    b"/tokenize": ("POST",),
    b"/detokenize": ("POST",),
}


def methods(path: bytes) -> tuple[str, ...]:
    """The methods of a pass-through route, () where `path`, as it is in the URL, is none."""
    if path in _METHODS:
        return _METHODS[path]
    found = _RESPONSE.fullmatch(path)
    return _RESPONSE_METHODS[found[2]] if found else ()


class Passthrough:
    """Serves those routes."""

    def __init__(self, services: Services) -> None:
        self._s = services

    async def __call__(self, path: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of a path that has `methods`. ApiError where the gateway answers;
        UnsafeHead; ClientGone."""
        s = self._s
        headers: dict[bytes, bytes] = dict(scope["headers"])
        tenant = s.auth.caller(headers).tenant
        body = await read_body(headers, receive, s.settings.max_body_bytes)
        admitted = None
        if s.limits is not None and path in _METHODS:
            admitted = await s.limits.admit(tenant, 0)
        try:
            await self._serve(path, scope, tenant, body, receive, send)
        finally:
            if admitted is not None and s.limits is not None:
                s.limits.release(admitted)

    async def _serve(
        self, path: bytes, scope: Scope, tenant: str, body: bytes, receive: Receive, send: Send
    ) -> None:
        s = self._s
        target = path + query_of(scope["query_string"])
        stored = _RESPONSE.fullmatch(path)
        response_id = stored[1].decode("latin-1") if stored else ""
        holder = await self._holder(tenant, response_id) if stored else None
        able = [replica for replica in s.registry.able() if holder in (None, replica.name)]
        if not able:
            raise errors.no_replica(s.settings.retry_after_s)
        departure = s.departures.expect(receive)
        try:
            for replica in able:
                last = replica is able[-1]
                status = await self._try(replica, target, scope, body, departure, send, last=last)
                if status is not None:
                    break
        finally:
            s.departures.done(departure)
        if stored and scope["method"] == "DELETE" and status in (200, 204):
            await s.chains.forget(tenant, response_id)

    async def _holder(self, tenant: str, response_id: str) -> str:
        """The replica that stores a tenant's response. ApiError."""
        s = self._s
        if not is_response_id(response_id):
            raise errors.response_not_found(response_id)
        try:
            answer = await s.chains.find(tenant, response_id)
        except TableUnavailable:
            raise errors.table_unavailable(s.settings.retry_after_s) from None
        holder = None if answer is None else s.registry.get(answer.replica)
        if holder is None or holder.circuit.dead:
            raise errors.response_not_found(response_id)
        return holder.name

    async def _try(
        self,
        replica: Replica,
        target: bytes,
        scope: Scope,
        body: bytes,
        departure: Departure,
        send: Send,
        *,
        last: bool,
    ) -> int | None:
        """Ask one replica and pass its answer on, whose status this is. None if it does not know
        and others may."""
        fields = for_engine(scope["headers"])
        head = replica.request_head(scope["method"], target, fields, len(body))
        exchange = Exchange(replica.upstream)
        try:
            departure.stop_on_departure(exchange)
            await exchange.start(head, body)
            answer = await exchange.read_all()
            check_head(exchange.status, exchange.headers)
            if exchange.status != 204:
                check_body(exchange.status, answer)
        except ReplicaError as error:
            exchange.cancel(error)
            registry = self._s.registry
            if isinstance(error, ConnectFailed):
                registry.failed(replica.name, error)
            else:
                # vLLM breaks some look-ups off on purpose of their client, as a stream of an answer
                # that has none. They count nothing; the next check tells how the replica is.
                registry.suspicion.set()
            # A request that was sent may be what the replica failed on.
            if last or not isinstance(error, ConnectFailed):
                raise ApiError(error.status, error.code, str(error)) from None
            return None
        else:
            if exchange.status == 404 and not last:
                return None
            if exchange.status >= 400:
                shape: ErrorShape = "anthropic" if target.startswith(_ANTHROPIC) else "openai"
                answer = errors.engine_error(exchange.status, answer, shape)
            kept, _ = for_client(exchange.headers)
            kept.append((b"x-weft-replica", replica.name.encode()))
            await respond(send, exchange.status, kept, answer)
            return exchange.status
        finally:
            exchange.close()
