"""Routes of the engine that are not calls of a program: token counts, stored responses.

They go to a healthy replica as they are. A stored response lives on the replica that made it, so
replicas are asked in turn until one knows it.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.api import errors
from gateway.api.errors import ApiError
from gateway.api.http import Departure, Receive, Scope, Send, read_body, respond
from gateway.api.services import Services
from gateway.engine.errors import ReplicaError
from gateway.engine.headers import for_client, for_engine
from gateway.engine.pool import Exchange
from gateway.engine.registry import Replica

_RESPONSE = re.compile(r"/v1/responses/[^/]+")
_METHODS: Final = {
    "/v1/messages/count_tokens": ("POST",),
    "/tokenize": ("POST",),
    "/detokenize": ("POST",),
}


def methods(path: str) -> tuple[str, ...]:
    """The methods of a pass-through route, () where `path` is none."""
    if path in _METHODS:
        return _METHODS[path]
    if path.startswith("/v1/responses/"):
        stem = path.removesuffix("/cancel")
        if _RESPONSE.fullmatch(stem):
            return ("POST",) if stem != path else ("GET", "DELETE")
    return ()


class Passthrough:
    """Serves those routes."""

    def __init__(self, services: Services) -> None:
        self._s = services

    async def __call__(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. ApiError where we answer ourselves; ClientGone."""
        s = self._s
        headers: dict[bytes, bytes] = dict(scope["headers"])
        s.auth.caller(headers)
        body = await read_body(headers, receive, s.settings.max_body_bytes)
        healthy = [replica for replica in s.registry if replica.circuit.healthy]
        if not healthy:
            raise errors.no_replica(s.settings.retry_after_s)
        departure = s.departures.expect(receive)
        try:
            for replica in healthy:
                last = replica is healthy[-1]
                if await self._try(replica, path, scope, body, departure, send, last=last):
                    return
        finally:
            s.departures.done(departure)

    async def _try(
        self,
        replica: Replica,
        path: str,
        scope: Scope,
        body: bytes,
        departure: Departure,
        send: Send,
        *,
        last: bool,
    ) -> bool:
        """Ask one replica. False if it does not know, and others may."""
        query = scope["query_string"].decode("latin-1")
        target = f"{path}?{query}" if query else path
        lines = for_engine(scope["headers"])
        head = replica.request_head(scope["method"], target, lines, len(body))
        exchange = Exchange(replica.upstream)
        try:
            departure.stop_on_departure(exchange)
            await exchange.start(head, body)
            answer = await exchange.read_all()
        except ReplicaError as error:
            self._s.registry.failed(replica.name, error)
            if last:
                raise ApiError(error.status, error.code, str(error)) from None
            return False
        else:
            if exchange.status == 404 and not last:
                return False
            kept, _ = for_client(exchange.headers)
            kept.append((b"x-weft-replica", replica.name.encode()))
            await respond(send, exchange.status, kept, answer)
            return True
        finally:
            exchange.close()
