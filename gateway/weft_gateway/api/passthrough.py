"""Engine routes that are not calls of a program: token counts, stored responses.

Requests go to a replica that takes calls. A stored response exists on the replica that created it,
and only for the tenant whose call created it: engines do not distinguish tenants. The engine's path
is one of the few below, never a client's own bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import Receive, Scope, Send

from weft_gateway import errors
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.body import check_media_names, json_value, raw_members
from weft_gateway.api.http import read_body, respond
from weft_gateway.calls.body_bytes import BodyBytes
from weft_gateway.calls.client import Disconnect, DisconnectMonitor
from weft_gateway.calls.limits import TenantLimits
from weft_gateway.calls.relay import check_body, check_head
from weft_gateway.calls.turns import Turns
from weft_gateway.config import Settings
from weft_gateway.engine.endpoints import api_of
from weft_gateway.engine.engine_request import with_model
from weft_gateway.engine.errors import ConnectFailed, ReplicaError
from weft_gateway.engine.headers import for_client, for_engine, query_of
from weft_gateway.engine.pool import Exchange
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.engine.shapes import fault_of
from weft_gateway.policies.retry_budget import RetryBudget
from weft_gateway.programs.ids import is_response_id
from weft_gateway.programs.response_store import ResponseStore

# Operations on a stored response, by the end of the path.
_RESPONSE = re.compile(rb"/v1/responses/([^/]+)(/cancel|/input_items)?")
_RESPONSE_METHODS: Final = {
    None: ("GET", "DELETE"),
    b"/cancel": ("POST",),
    b"/input_items": ("GET",),
}
_TOKENIZE: Final = b"/tokenize"
_METHODS: Final = {
    b"/v1/messages/count_tokens": ("POST",),
    _TOKENIZE: ("POST",),
    b"/detokenize": ("POST",),
}


def methods(path: bytes) -> tuple[str, ...]:
    """Return a pass-through route's methods; () if the raw `path` is no such route."""
    if path in _METHODS:
        return _METHODS[path]
    found = _RESPONSE.fullmatch(path)
    return _RESPONSE_METHODS[found[2]] if found else ()


@dataclass(slots=True, eq=False)
class Passthrough:
    """Serves the pass-through routes."""

    auth: Authenticator
    registry: Registry
    chains: ResponseStore
    limits: TenantLimits
    disconnects: DisconnectMonitor
    turns: Turns
    bodies: BodyBytes
    settings: Settings
    budget: RetryBudget
    count_retry: Callable[[str], None]

    async def __call__(self, path: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request with a path that has `methods`. Raises ApiError for answers of the
        gateway, ReplicaError, TableUnavailable, UnsafeHead, and ClientGone.
        """
        headers: dict[bytes, bytes] = dict(scope["headers"])
        tenant = self.auth.caller(headers).tenant
        held = self.bodies.hold(tenant)
        body = await read_body(headers, receive, self.settings.max_body_bytes, held)
        if path in _METHODS:
            # Only calls get their tenant's own names of media.
            if path == _TOKENIZE:
                await check_media_names(body, self.turns, tenant)
            if self.registry.aliases:
                await self.turns.take(tenant, len(body))
                body = self._with_model(body)
            async with self.limits.admitted(tenant, 0):
                await self._serve(path, scope, tenant, body, receive, send)
        else:
            await self._serve(path, scope, tenant, body, receive, send)

    def _with_model(self, body: bytes) -> bytes:
        """Return a body with the served model instead of an alias."""
        name = json_value(bytes(raw_members(body).get("model", b"null")))
        if not isinstance(name, str) or (model := self.registry.resolved(name)) == name:
            return body
        return with_model(body, model)

    async def _serve(
        self, path: bytes, scope: Scope, tenant: str, body: bytes, receive: Receive, send: Send
    ) -> None:
        target = path + query_of(scope["query_string"])
        stored = _RESPONSE.fullmatch(path)
        response_id = stored[1].decode("latin-1") if stored else ""
        holder = await self._holder(tenant, response_id) if stored else None
        able = self.registry.able(draining=holder is not None)
        able = [replica for replica in able if holder in (None, replica.name)]
        deletes = (tenant, response_id) if stored and scope["method"] == "DELETE" else None
        if not able:
            raise errors.of("no_replica", retry_after_s=self.settings.retry_after_s)
        self.budget.add_call()
        client, unreachable = self.disconnects.expect(receive), 0
        try:
            for replica in able:
                last = replica is able[-1]
                try:
                    answered = await self._try(
                        replica, target, scope, body, client, send, deletes, last=last
                    )
                except ConnectFailed:
                    # The replica read no byte, so another one may take the request.
                    unreachable += 1
                    if last or unreachable >= self.settings.attempts_per_call:
                        raise
                    if not self.budget.take():
                        self.count_retry("refused")
                        raise
                    self.count_retry("retried")
                    continue
                if answered:
                    break
        finally:
            self.disconnects.done(client)

    async def _holder(self, tenant: str, response_id: str) -> str:
        """Return the name of the replica that stores a tenant's response. Raises ApiError and
        TableUnavailable.
        """
        if not is_response_id(response_id):
            raise errors.of("response_not_found", name=response_id)
        answer = await self.chains.find(tenant, response_id)
        holder = None if answer is None else self.registry.get(answer.replica)
        if holder is None or holder.circuit.dead:
            raise errors.of("response_not_found", name=response_id)
        return holder.name

    async def _try(
        self,
        replica: Replica,
        target: bytes,
        scope: Scope,
        body: bytes,
        client: Disconnect,
        send: Send,
        deletes: tuple[str, str] | None,
        *,
        last: bool,
    ) -> bool:
        """Send the request to one replica, and forward its answer. Return False if the replica
        lacks the resource and other replicas may have it. deletes: the tenant and id of the answer
        that the request deletes. It is forgotten before the client knows. Raises ReplicaError.
        """
        fields = for_engine(scope["headers"])
        head = replica.request_head(scope["method"], target, fields, len(body))
        exchange = Exchange(replica.upstream)
        try:
            client.stops(exchange)
            await exchange.start(head, body)
            answer = await exchange.read_all()
            check_head(exchange.status, exchange.headers)
            if exchange.status != 204:
                check_body(exchange.status, answer)
        except ReplicaError as error:
            exchange.cancel(error)
            registry = self.registry
            if isinstance(error, ConnectFailed):
                registry.failed(replica.name, error)
            else:
                # vLLM breaks off some lookups because of the client's request, such as streaming an
                # answer that has no stream. They do not count as failures; the next check
                # determines the replica's state.
                registry.suspicion.set()
            raise
        else:
            if exchange.status == 404 and not last:
                return False
            if deletes is not None and exchange.status in (200, 204):
                await self.chains.forget(*deletes)
            if exchange.status >= 400:
                shape = api_of(scope["path"], scope["headers"])
                answer = errors.from_engine(fault_of(answer, exchange.status), shape).body(shape)
            kept, _ = for_client(exchange.headers, is_error=exchange.status >= 400)
            kept.append((b"x-weft-replica", replica.name.encode()))
            await respond(send, exchange.status, kept, answer)
            return True
        finally:
            exchange.close()
