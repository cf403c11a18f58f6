"""Routes that are not calls of a program: token counts, stored responses.

Requests for token counts go to a replica that takes calls. A stored response exists only for the
tenant whose call created it. The gateway has it; only one that an engine generates in the
background has to be asked for there. The engine's path is one of the few below, never a client's
own bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs

import orjson
from starlette.types import Receive, Scope, Send

from weft_gateway import errors
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.body import check_media_names, json_value, raw_members
from weft_gateway.api.history import History
from weft_gateway.api.http import read_body, respond
from weft_gateway.calls.body_bytes import BodyBytes
from weft_gateway.calls.client import Disconnect, DisconnectMonitor
from weft_gateway.calls.limits import TenantLimits
from weft_gateway.calls.relay import check_body, check_head
from weft_gateway.calls.stored import (
    UNFINISHED,
    item_id,
    items_of,
    named_item,
    output_of,
    response_of,
)
from weft_gateway.calls.turns import Turns
from weft_gateway.config import Settings
from weft_gateway.constants import Constants
from weft_gateway.engine.endpoints import api_of
from weft_gateway.engine.engine_request import with_model
from weft_gateway.engine.errors import ConnectFailed, ReplicaError
from weft_gateway.engine.headers import for_client, for_engine, query_of
from weft_gateway.engine.pool import Exchange
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.engine.shapes import fault_of
from weft_gateway.errors import ApiError
from weft_gateway.policies.retry_budget import RetryBudget
from weft_gateway.programs.ids import is_response_id

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
    # Others are routes of OpenAI, such as `compact`.
    own = found is not None and is_response_id(found[1].decode("latin-1"))
    return _RESPONSE_METHODS[found[2]] if found is not None and own else ()


@dataclass(slots=True, eq=False)
class Passthrough:
    """Serves the pass-through routes."""

    auth: Authenticator
    registry: Registry
    history: History
    limits: TenantLimits
    disconnects: DisconnectMonitor
    turns: Turns
    bodies: BodyBytes
    settings: Settings
    constants: Constants
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
                await self._serve(path, scope, body, receive, send)
        else:
            await self._stored(path, scope, tenant, body, receive, send)

    def _with_model(self, body: bytes) -> bytes:
        """Return a body with the served model instead of an alias."""
        name = json_value(bytes(raw_members(body).get("model", b"null")))
        if not isinstance(name, str) or (model := self.registry.resolved(name)) == name:
            return body
        return with_model(body, model)

    async def _serve(
        self, path: bytes, scope: Scope, body: bytes, receive: Receive, send: Send, only: str = ""
    ) -> None:
        """Let an engine answer. only: the name of the replica that can, "" for any."""
        able = self.registry.able(draining=bool(only))
        able = [replica for replica in able if only in ("", replica.name)]
        if not able:
            raise errors.of("no_replica")
        target = path + query_of(scope["query_string"])
        self.budget.add_call()
        client, unreachable = self.disconnects.expect(receive), 0
        try:
            for replica in able:
                last = replica is able[-1]
                try:
                    answered = await self._try(
                        replica, target, scope, body, client, send, last=last
                    )
                except ConnectFailed:
                    # The replica read no byte, so another one may take the request.
                    unreachable += 1
                    if last or unreachable >= self.constants.attempts_per_call:
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

    async def _stored(
        self, path: bytes, scope: Scope, tenant: str, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Serve a request for a stored response."""
        found = _RESPONSE.fullmatch(path)
        assert found is not None
        name, part = found[1].decode("latin-1"), found[2]
        answer = await self.history.answers.find(tenant, name) if is_response_id(name) else None
        query = parse_qs(query_of(scope["query_string"])[1:].decode())
        if answer is not None and answer.replica:
            answer = await self.history.settled(tenant, name, answer)
        if answer is None or not answer.response:
            raise errors.of("response_not_found", name=name)
        response = response_of(answer.response)
        runs = response.status in UNFINISHED
        if (part is None and query.get("stream") == ["true"]) or (part == b"/cancel" and runs):
            if not answer.replica:
                what = "Only a response of the background has a stream after its call."
                raise ApiError(400, "invalid_request", what, param="stream")
            await self._serve(path, scope, body, receive, send, answer.replica)
            return
        shown = answer.response
        if part == b"/cancel" and not response.background:
            raise ApiError(400, "invalid_request", "Only a background response can be cancelled.")
        if part == b"/input_items":
            shown = await self._input(tenant, name, query)
        elif scope["method"] == "DELETE":
            await self.history.answers.forget(tenant, name)
            shown = orjson.dumps({"id": name, "object": "response", "deleted": True})
        await respond(send, 200, [(b"content-type", b"application/json")], shown)

    async def _input(self, tenant: str, name: str, query: dict[str, list[str]]) -> bytes:
        """Return a page of the items that a response was generated from. Raises ApiError."""
        try:
            chain = await self.history.answers.chain(tenant, name, self.settings.max_body_bytes)
        except KeyError:
            raise errors.of("response_not_found", name=name) from None
        parts: list[bytes] = []
        for one in chain.values():
            parts += (output_of(one.response), one.items)
        del parts[0]  # The output of the response itself.
        joined = b",".join(filter(None, reversed(parts)))
        held = self.bodies.hold(tenant)
        held.take(len(joined))
        await self.turns.take(tenant, len(joined))
        items = items_of(joined)
        names = [item_id(item) or f"item_{number}" for number, item in enumerate(items)]
        step = 1 if query.get("order") == ["asc"] else -1
        shown, ids = items[::step], names[::step]
        limit = query.get("limit", ["20"])[0]
        most = min(max(int(limit), 1), 100) if limit.isdecimal() else 20
        after = query.get("after", [""])[0]
        start = ids.index(after) + 1 if after in ids else 0
        page = slice(start, start + most)
        return orjson.dumps(
            {
                "object": "list",
                "data": [*map(named_item, shown[page], ids[page])],
                "first_id": next(iter(ids[page]), None),
                "last_id": next(reversed(ids[page]), None),
                "has_more": start + most < len(shown),
            }
        )

    async def _try(
        self,
        replica: Replica,
        target: bytes,
        scope: Scope,
        body: bytes,
        client: Disconnect,
        send: Send,
        *,
        last: bool,
    ) -> bool:
        """Send the request to one replica, and forward its answer. Return False if the replica
        lacks the resource and other replicas may have it. Raises ReplicaError.
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
            if exchange.status >= 400:
                shape = api_of(scope["path"], scope["headers"])
                answer = errors.from_engine(fault_of(answer, exchange.status), shape).body(shape)
            kept, _ = for_client(exchange.headers, is_error=exchange.status >= 400)
            kept.append((b"x-weft-replica", replica.name.encode()))
            await respond(send, exchange.status, kept, answer)
            return True
        finally:
            exchange.close()
