"""A client's request: read, parsed, authenticated, and its program found."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from weft_gateway.api import errors
from weft_gateway.api.auth import Caller
from weft_gateway.api.body import call_body, is_skimmed, json_object
from weft_gateway.api.errors import ApiError
from weft_gateway.api.http import Receive, Scope, read_body
from weft_gateway.api.limits import Admitted
from weft_gateway.api.services import Services
from weft_gateway.api.turns import LIGHT_BYTES
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.engine.headers import query_of
from weft_gateway.engine.registry import Registry
from weft_gateway.engine.tokens import Counted
from weft_gateway.model import ProgramKey
from weft_gateway.model.hint import NO_HINTS, Hints
from weft_gateway.overlap.dispatch import HEADER as DISPATCH_HEADER
from weft_gateway.overlap.dispatch import opted_in
from weft_gateway.overlap.prefill import Prefill
from weft_gateway.policies.hints import DEFAULT_LIMITS, read_hints
from weft_gateway.policies.tags_sections import Section
from weft_gateway.programs.families import fold, has_parent
from weft_gateway.programs.identity import Identity, IdentityError, resolve
from weft_gateway.programs.ids import is_response_id
from weft_gateway.programs.lineage.rules import Asked, shown
from weft_gateway.programs.table import TableUnavailable
from weft_gateway.telemetry.receipts import Receipt


@dataclass(slots=True)
class Request:
    """A request that has been understood.

    target: path and query for the engine. headers: as ASGI gives them. raw: the body; body: the
    same, parsed. model: "" where the engine is to decide. begun: on the performance counter.
    holder: the replica that stores the answer which this call continues, or "". hints: of all
    dialects. dispatch: the client wants complete tool calls told in its stream. asked: lineage has
    placed the call. prefill: the handle that it extends. met: its program's handles were looked at.
    sections, counted: the prompt, once it has been counted. admitted: how it counts against its
    tenant's limits, None where there are none. receipt: of its last call, where one is kept.
    """

    endpoint: Endpoint
    target: bytes
    headers: list[tuple[bytes, bytes]]
    raw: bytes
    body: dict[str, Any]
    model: str
    caller: Caller
    identity: Identity
    request_id: bytes
    begun: float
    holder: str = ""
    hints: Hints = NO_HINTS
    dispatch: bool = False
    asked: Asked | None = None
    prefill: Prefill | None = None
    met: bool = False
    sections: Sequence[Section] = ()
    counted: Counted | None = None
    admitted: Admitted | None = None
    receipt: Receipt | None = None


async def read_request(
    services: Services,
    endpoint: Endpoint,
    scope: Scope,
    headers: dict[bytes, bytes],
    receive: Receive,
    program: str | None,
    request_id: bytes,
    begun: float,
) -> Request:
    """Read one request. `program`: as the path named it, if it did. ApiError; UnsafeHead;
    ClientGone."""
    s = services
    # Who calls is settled before a large body is taken in.
    caller = s.auth.caller(headers)
    raw = await read_body(headers, receive, s.settings.max_body_bytes)
    if len(raw) <= LIGHT_BYTES:
        raw, body = json_object(raw)
    else:
        raw, body = await call_body(raw, s.settings.read_body_bytes, s.turns, caller.tenant)
    holder = ""
    if endpoint.chained and body.get("previous_response_id") is not None:
        holder = await _holder(s, caller, body["previous_response_id"])
    try:
        identity = resolve(
            tenant=caller.tenant,
            headers=scope["headers"],
            body=body,
            path_program=program,
            chains=s.chains,
            traceparent=s.settings.traceparent_programs,
            chained=endpoint.chained,
        )
    except IdentityError as error:
        raise errors.wrong_id(error) from None
    if identity.parent and has_parent(identity):
        identity = await fold(s.chains, identity)
    return Request(
        endpoint,
        endpoint.path.encode() + query_of(scope["query_string"]),
        scope["headers"],
        raw,
        body,
        model_of(s.registry, body),
        caller,
        identity,
        request_id,
        begun,
        holder,
        read_hints(
            body,
            headers,
            DEFAULT_LIMITS,
            b"" if len(raw) > LIGHT_BYTES and is_skimmed(body) else raw,
        ),
        opted_in(headers.get(DISPATCH_HEADER), body.get("weft")),
    )


async def join_lineage(services: Services, request: Request) -> None:
    """Find the program of a call that carries no key by what it says (row 5 of the alias table).
    Where what is remembered cannot be read, the call stays a program of its own."""
    lineage = services.lineage
    if lineage is None or request.identity.source != "none" or not request.endpoint.spoken:
        return
    own, now = request.identity, time()
    tenant, fresh = own.key
    if len(request.raw) > LIGHT_BYTES:
        if is_skimmed(request.body):
            return
        await services.turns.take(tenant, len(request.raw))
    try:
        asked = await lineage.ask(tenant, request.body, fresh, now)
    except TableUnavailable:
        return
    request.asked = asked
    verdict, key = asked.verdict, own.key
    request.identity = Identity(
        key if verdict.program == key.program else ProgramKey(key.tenant, verdict.program),
        verdict.thread_name,
        verdict.parent_name,
        "lineage",
        ephemeral=False,
    )
    for owner, into in verdict.folds:
        services.receipts.move(tenant, owner, into, shown)
        # What it has used is told there from now on, and so are its calls to come.
        services.ledger.spawn(_ended(services, ProgramKey(tenant, owner)))


async def _ended(services: Services, key: ProgramKey) -> None:
    with contextlib.suppress(TableUnavailable):
        await services.table.end(key, time())


async def _holder(services: Services, caller: Caller, previous: Any) -> str:
    """The replica that stores the answer `previous`. ApiError where this tenant has none of that
    name, and where that cannot be told now: an engine does not ask whose answer it is."""
    if not isinstance(previous, str):
        raise errors.invalid_member(("previous_response_id",), "must be a string")
    if not is_response_id(previous):
        raise errors.previous_response_not_found(previous)
    try:
        answer = await services.chains.find(caller.tenant, previous)
    except TableUnavailable:
        raise errors.table_unavailable(services.settings.retry_after_s) from None
    if answer is None:
        raise errors.previous_response_not_found(previous)
    return answer.replica


def model_of(registry: Registry, body: dict[str, Any]) -> str:
    """The model that the call is for. Where only one is served, its engine decides what a missing
    or malformed name means."""
    model = body.get("model")
    if isinstance(model, str) and model:
        if not registry.knows(model):
            raise errors.model_not_found(model)
        return model
    served = registry.models()
    if len(served) > 1:
        raise ApiError(400, "missing_model", "You must provide a model.", param="model")
    return next(iter(served), "")
