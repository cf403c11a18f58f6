"""A client's request: read, parsed, authenticated, and its program found."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from time import time
from typing import Any

from gateway.api import errors
from gateway.api.auth import Caller
from gateway.api.body import json_object
from gateway.api.errors import ApiError
from gateway.api.http import Receive, Scope, read_body
from gateway.api.services import Services
from gateway.engine.endpoints import Endpoint
from gateway.engine.registry import Registry
from gateway.model import ProgramKey
from gateway.model.hint import NO_HINTS, Hints
from gateway.overlap.dispatch import HEADER as DISPATCH_HEADER
from gateway.overlap.dispatch import opted_in
from gateway.overlap.prefill import Prefill
from gateway.policies.hints import DEFAULT_LIMITS, read_hints
from gateway.programs.families import fold, has_parent
from gateway.programs.identity import Identity, IdentityError, resolve
from gateway.programs.lineage.openings import Opening
from gateway.programs.lineage.rules import Asked, shown
from gateway.programs.table import TableUnavailable
from gateway.telemetry.receipts import Receipt


@dataclass(slots=True)
class Request:
    """A request that has been understood.

    target: path and query for the engine. headers: as ASGI gives them. raw: the body; body: the
    same, parsed. model: "" where the engine is to decide. begun: on the performance counter.
    holder: the replica that stores the answer which this call continues, or "". hints: of all
    dialects. dispatch: the client wants complete tool calls told in its stream. asked: lineage has
    placed the call. prefill: the handle that it extends. met: its program's handles were looked at.
    receipt: of its last call, where one is kept.
    """

    endpoint: Endpoint
    target: str
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
    asked: Asked | Opening | None = None
    prefill: Prefill | None = None
    met: bool = False
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
    """Read one request. `program`: as the path named it, if it did. ApiError; ClientGone."""
    s = services
    # Who calls is settled before a large body is taken in.
    caller = s.auth.caller(headers)
    raw, body = json_object(await read_body(headers, receive, s.settings.max_body_bytes))
    holder = ""
    if endpoint.chained and body.get("previous_response_id"):
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
    if holder and s.table.peek(identity.key) is None:
        await _stands_alone(s, identity.key)
    query = scope["query_string"]
    return Request(
        endpoint,
        f"{endpoint.path}?{query.decode('latin-1')}" if query else endpoint.path,
        scope["headers"],
        raw,
        body,
        model_of(s.registry, body),
        caller,
        identity,
        request_id,
        begun,
        holder,
        read_hints(body, headers, DEFAULT_LIMITS, raw),
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
    kept = lineage.keep(tenant, request.body, fresh, now)
    if kept is not None:
        request.asked = kept
        return
    try:
        asked = await lineage.look(tenant, request.body, fresh, now)
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
    for owner, into in verdict.late(fresh):
        services.receipts.move(tenant, owner, into or owner, shown)
        if into:
            # What it has used is told there from now on, and so are its calls to come.
            services.ledger.spawn(_ended(services, ProgramKey(tenant, owner)))


async def _ended(services: Services, key: ProgramKey) -> None:
    with contextlib.suppress(TableUnavailable):
        await services.table.end(key, time())


async def _stands_alone(services: Services, key: ProgramKey) -> None:
    """The first call that goes on from an answer whose program has no row: its first call was taken
    for the twin of another program's, which it was not."""
    if services.lineage is None:
        return
    services.receipts.move(key.tenant, key.program, key.program, shown)
    with contextlib.suppress(TableUnavailable):
        await services.lineage.apart(key.tenant, key.program, time())


async def _holder(services: Services, caller: Caller, previous: Any) -> str:
    """The replica that stores the answer `previous`. ApiError where this tenant has none of that
    name: an engine would not ask whose it is."""
    if not isinstance(previous, str):
        return ""  # Refused by whoever looks at it next.
    try:
        answer = await services.chains.find(caller.tenant, previous)
    except TableUnavailable:
        return ""  # Nobody can tell now. Ids are long and random; the engine decides.
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
