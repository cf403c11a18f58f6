"""The hint endpoints: Sutradhara's Table 1 over HTTP.

`submit_partial_prefill` and `extend_prefill` are `/v1/hints/prefill` (the extension itself is a hot
call), `tag_kv_blocks` is `/v1/hints/tags`, `set_reuse_priority` is `/v1/hints/priority`, and
`register_streaming_callback` is a program's event stream. Hints are optional, and a wrong hint
changes no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any, Final

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from weft_gateway import errors
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.body import call_body, described, is_skimmed, read_model
from weft_gateway.api.http import read_body
from weft_gateway.api.sessions import program_key
from weft_gateway.calls.body_bytes import BodyBytes
from weft_gateway.calls.identify import Identifier
from weft_gateway.calls.limits import TenantLimits
from weft_gateway.calls.prefills import PrefillManager
from weft_gateway.calls.turns import Turns
from weft_gateway.config import Settings
from weft_gateway.constants import Constants
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.engine.media import text_bytes
from weft_gateway.engine.registry import Registry
from weft_gateway.engine.tokens import TokenCounter
from weft_gateway.errors import ApiError
from weft_gateway.model import ProgramAttribute, ProgramKey
from weft_gateway.model.hint import OwnTag
from weft_gateway.overlap import tag_codec
from weft_gateway.overlap.prefill import MAX_TTL_S, Prefill
from weft_gateway.policies.hints_values import (
    MAX_RETAIN_S,
    MAX_REUSE_PRIORITY,
    MAX_TAGS,
    MAX_TOKENS,
    own_tag,
)
from weft_gateway.programs.ids import from_json
from weft_gateway.programs.lineage.tracker import Lineage
from weft_gateway.programs.table import ProcessTable, TableUnavailable

DEFAULT_TTL_S: Final = 60.0
_SESSION: Final = "the session; if missing, the request's headers name it, as for a call"


class NewPrefill(BaseModel):
    """The messages that the program's next call begins with."""

    model_config = ConfigDict(extra="allow")

    messages: list[dict[str, Any]] = Field(description="the messages that are known already")
    model: str | None = Field(None, description="the call's model")
    tools: list[dict[str, Any]] | None = Field(None, description="the call's tools")
    session_id: str | None = Field(None, description="the session; its aliases work too")
    ttl_s: float = Field(
        DEFAULT_TTL_S, gt=0, description=f"lifetime in seconds, cut to {MAX_TTL_S:g}"
    )


class TagHint(BaseModel):
    """Tags for parts of a program's prompts."""

    session_id: str | None = Field(None, description=_SESSION)
    tags: list[dict[str, Any]] = Field(
        description="each has a `tag` and a range: `messages` (first index and the index after the "
        "last), `message` (one index), or `start` and `end` (tokens). The tags apply to the "
        "session's next calls, in addition to the tags by the messages' roles. An empty list "
        "removes them",
        max_length=MAX_TAGS,
    )
    ttl_s: float = Field(300.0, gt=0, le=3600, description="seconds")


class PriorityHint(BaseModel):
    """How long to keep a program's KV blocks compared with those of other programs."""

    session_id: str | None = Field(None, description=_SESSION)
    priority: int | None = Field(
        None, ge=-MAX_REUSE_PRIORITY, le=MAX_REUSE_PRIORITY, description="higher stays longer"
    )
    retain_s: float | None = Field(
        None, ge=0, le=MAX_RETAIN_S, description="seconds of pinning; 0 unpins"
    )
    retain_tokens: int | None = Field(
        None, ge=0, le=MAX_TOKENS, description="pin only the blocks of this many first tokens"
    )
    ttl_s: float = Field(300.0, gt=0, le=3600, description="lifetime of the priority in seconds")


def prefill_router(
    auth: Authenticator,
    identifier: Identifier,
    prefills: PrefillManager,
    lineage: Lineage | None,
    limits: TenantLimits,
    tokens: TokenCounter,
    turns: Turns,
    bodies: BodyBytes,
    settings: Settings,
    constants: Constants,
) -> APIRouter:
    """Create the routes of prefills. lineage: None if each call without a key is a separate
    program.
    """
    api = APIRouter(prefix="/v1/hints", tags=["hints"])

    async def found(tenant: str, prefill_id: str) -> Prefill:
        """Return a tenant's handle. Raises ApiError 404, also if the store does not answer."""
        try:
            return await prefills.find(tenant, prefill_id)
        except TableUnavailable:
            raise ApiError(
                404,
                "prefill_not_found",
                f"The prefill {prefill_id!r} is not known here, and the store that other gateways "
                "share with this one does not answer.",
            ) from None

    @api.post(
        "/prefill",
        status_code=201,
        summary="submit_partial_prefill: prefill the beginning of the next call",
        openapi_extra=described(NewPrefill, required=True),
    )
    async def create_prefill(request: Request) -> dict[str, Any]:
        """Return a handle at once, and prefill in the background. The engine keeps the blocks
        longer than all others except pinned ones, until the call has arrived at `POST
        /v1/hints/prefill/{prefill_id}/extend`, or the handle is deleted or expires."""
        headers = dict(request.headers.raw)
        caller = auth.caller(headers)
        held = bodies.hold(caller.tenant)
        raw = await read_body(headers, request.receive, settings.max_body_bytes, held)
        most, items = constants.read_body_bytes, constants.read_body_messages
        body = (await call_body(raw, most, items, turns, caller.tenant)).members
        if is_skimmed(body):
            raise ApiError(
                413, "body_too_large", "The announced messages are too long, or too many, to read."
            )
        identity = await identifier.announced(caller.tenant, request.headers.raw, body)
        key = identity.key
        if identity.source == "none" and lineage is not None:
            program = await lineage.find(key.tenant, body, key.program, time())
            key = ProgramKey(key.tenant, program)
        model, ttl_s = identifier.model_of(body), _ttl(body)
        # A prefill in flight has its own limits. Here it counts as one request.
        async with limits.admitted(caller.tenant, tokens.estimate(model, text_bytes(raw))):
            prefill = await prefills.submit(caller, key, body, model, ttl_s)
        return prefill.to_json()

    @api.get("/prefill/{prefill_id}", summary="Get a prefill")
    async def get_prefill(prefill_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """Its status, its replica and its cost."""
        return (await found(tenant, prefill_id)).to_json()

    @api.delete(
        "/prefill/{prefill_id}",
        summary="Discard a prefill, for example because its tools failed",
    )
    async def delete_prefill(prefill_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """Stop the prefill if it still runs, and release its blocks."""
        prefill = await found(tenant, prefill_id)
        await prefills.discard(prefill)
        return {"id": prefill.id, "object": "weft.prefill.deleted", "deleted": True}

    return api


def router(
    auth: Authenticator,
    identifier: Identifier,
    table: ProcessTable,
    registry: Registry,
    advisor: KvAdvisor,
    settings: Settings,
) -> APIRouter:
    """Create the routes of tags and priorities."""
    api = APIRouter(prefix="/v1/hints", tags=["hints"])

    async def named(request: Request, tenant: str, session_id: str | None) -> ProgramKey:
        """Return the program that the body names or, if absent, the headers."""
        if session_id is not None:
            return program_key(tenant, from_json(session_id, "session_id"))
        identity = await identifier.announced(tenant, request.headers.raw, {})
        if identity.source == "none":
            raise errors.invalid_member(("session_id",), "must be in the body or in a header")
        return identity.key

    async def holders(key: ProgramKey) -> tuple[str, ...]:
        """Return the replicas that may hold a program's blocks. Raises ApiError 404."""
        program = await table.get(key)
        if program is None:
            raise errors.of("session_not_found", name=key.program)
        # Short calls of a program without a home may have run anywhere.
        return program.replicas if program.home else tuple(replica.name for replica in registry)

    @api.post(
        "/tags",
        summary="tag_kv_blocks: tag parts of a program's prompts",
        openapi_extra=described(TagHint, required=True),
    )
    async def tag_prompts(request: Request, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """Return each tag's fate. A call's own `weft.tags` take precedence."""
        hint = await read_model(request, TagHint, settings.max_body_bytes)
        key = await named(request, tenant, hint.session_id)
        found, fates = _tags(hint.tags)
        now = time()
        await table.set_attribute(
            key, ProgramAttribute(tag_codec.TAGS, tag_codec.encode(found), now + hint.ttl_s), now
        )
        return {"session_id": key.program, "object": "weft.hint", "fates": fates}

    @api.post(
        "/priority",
        summary="set_reuse_priority: set how long to keep a program's KV blocks",
        openapi_extra=described(PriorityHint, required=True),
    )
    async def set_priority(request: Request, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """Return the hint's fate at each replica that may hold the program's blocks. `priority` or
        `retain_s` is required."""
        hint = await read_model(request, PriorityHint, settings.max_body_bytes)
        if hint.priority is None and hint.retain_s is None:
            raise errors.invalid_member(("priority",), "priority or retain_s is needed")
        key = await named(request, tenant, hint.session_id)
        names = await holders(key)
        fates: dict[str, dict[str, str]] = {}
        if hint.retain_s is not None:
            fates["retain"] = await (
                advisor.advise(key, names, "retain", ttl_s=hint.retain_s, tokens=hint.retain_tokens)
                if hint.retain_s
                else advisor.advise(key, names, "release")
            )
        if hint.priority is not None:
            fates["priority"] = await advisor.advise(
                key, names, "priority", priority=hint.priority, ttl_s=hint.ttl_s
            )
        return {"session_id": key.program, "object": "weft.hint", "fates": fates}

    return api


def _ttl(body: Mapping[str, Any]) -> float:
    ttl = body.get("ttl_s", DEFAULT_TTL_S)
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl <= 1e9:
        raise errors.invalid_member(("ttl_s",), "must be seconds, more than 0")
    return min(float(ttl), MAX_TTL_S)


def _tags(given: list[dict[str, Any]]) -> tuple[tuple[OwnTag, ...], list[str]]:
    """Return the valid tags, and the fate of each given one."""
    found: list[OwnTag] = []
    fates = []
    for number, value in enumerate(given):
        name = f"tags[{number}]"
        try:
            found.append(own_tag(name, value))
        except ValueError as error:
            fates.append(f"{name}=ignored: {error}")
        else:
            fates.append(f"{name}=noted for the next calls")
    return tuple(found), fates
