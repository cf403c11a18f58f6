"""The hint endpoints: Sutradhara's Table 1 over HTTP.

`submit_partial_prefill` and `extend_prefill` are `/v1/hints/prefill` (the extension itself is a hot
call), `tag_kv_blocks` is `/v1/hints/tags`, `set_reuse_priority` is `/v1/hints/priority`, and
`register_streaming_callback` is a program's event stream. Hints can only help: none is needed, and
wrong ones change no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from weft_gateway import errors
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.body import call_body, described, is_skimmed, read_model
from weft_gateway.api.http import read_body
from weft_gateway.api.sessions import program_key
from weft_gateway.calls.identify import Identifier
from weft_gateway.calls.limits import TenantLimits
from weft_gateway.calls.prefills import PrefillManager
from weft_gateway.calls.turns import Turns
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.engine.estimate import PromptEstimator
from weft_gateway.engine.registry import Registry
from weft_gateway.errors import ApiError
from weft_gateway.model import ProgramKey, Told
from weft_gateway.model.hint import OwnTag
from weft_gateway.overlap import told
from weft_gateway.overlap.prefill import MAX_TTL_S, Prefill
from weft_gateway.policies.hints import DEFAULT_LIMITS
from weft_gateway.policies.hints_values import own_tag
from weft_gateway.programs.ids import from_json
from weft_gateway.programs.lineage.tracker import Lineage
from weft_gateway.programs.table import ProcessTable, TableUnavailable

DEFAULT_TTL_S: Final = 60.0
_SESSION: Final = "where it is missing, the session's header is taken, as for a call"

_CHAT: Final[list[Any]] = [
    {"role": "system", "content": "You answer with the help of tools."},
    {"role": "user", "content": "How far is it from Lyon to Turin?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "distance", "arguments": '{"from": "Lyon", "to": "Turin"}'},
            }
        ],
    },
]


class NewPrefill(BaseModel):
    """What the program's next call is going to begin with."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {"model": "weft-demo", "messages": _CHAT, "session_id": "run-7", "ttl_s": 30}
        },
    )
    messages: list[dict[str, Any]] = Field(description="the messages that are known already")
    model: str | None = None
    tools: list[dict[str, Any]] | None = Field(None, description="the same as the call will have")
    session_id: str | None = Field(None, description="or any other name of the alias table")
    ttl_s: float = Field(DEFAULT_TTL_S, gt=0, description=f"seconds, at most {MAX_TTL_S:g}")


class TagHint(BaseModel):
    """What a program's prompts hold."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "session_id": "run-7",
                "tags": [
                    {"messages": [0, 1], "tag": "SYSTEM_PROMPT"},
                    {"messages": [4, 7], "tag": "TOOL_OUTPUT"},
                ],
                "ttl_s": 300,
            }
        }
    )
    session_id: str | None = Field(None, description=_SESSION)
    tags: list[dict[str, Any]] = Field(
        description="`messages`: from and up to an index, or `message`: one, or `start` and `end`: "
        "tokens; with `tag`. They hold for the session's next calls, beside those that come by "
        "themselves from the messages' roles; an empty list forgets them",
        max_length=64,
    )
    ttl_s: float = Field(300.0, gt=0, le=3600, description="seconds")


class PriorityHint(BaseModel):
    """How long a program's KV blocks are worth keeping, beside those of others."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"session_id": "run-7", "priority": 1, "ttl_s": 120}}
    )
    session_id: str | None = Field(None, description=_SESSION)
    priority: int | None = Field(None, ge=-4, le=4, description="tiers; higher stays longer")
    retain_s: float | None = Field(None, ge=0, le=3600, description="pin them so long; 0: unpin")
    retain_tokens: int | None = Field(
        None, ge=0, le=1 << 30, description="pin only what the first so many tokens of it hold"
    )
    ttl_s: float = Field(300.0, gt=0, le=3600, description="the priority ends after so long")


def prefill_router(
    auth: Authenticator,
    identifier: Identifier,
    prefills: PrefillManager,
    lineage: Lineage | None,
    limits: TenantLimits | None,
    estimator: PromptEstimator,
    turns: Turns,
    *,
    max_body_bytes: int,
    read_body_bytes: int,
) -> APIRouter:
    """The routes of prefills. lineage: None where calls without a key are programs of their own.
    limits: None where no tenant has any."""
    api = APIRouter(prefix="/v1/hints", tags=["hints"])

    def tenant_of(request: Request) -> str:
        return auth.caller(dict(request.headers.raw)).tenant

    async def found(tenant: str, prefill_id: str) -> Prefill:
        """A tenant's handle. ApiError 404, also where it cannot be told now."""
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
        summary="submit_partial_prefill: prefill what the next call begins with",
        openapi_extra=described(NewPrefill, required=True),
    )
    async def submit(request: Request) -> JSONResponse:
        """Returns at once with a handle. The blocks are pinned until the call has come by
        `POST /v1/hints/prefill/{id}/extend`, the handle is deleted, or it expires."""
        headers = dict(request.headers.raw)
        caller = auth.caller(headers)
        raw = await read_body(headers, request.receive, max_body_bytes)
        _, body = await call_body(raw, read_body_bytes, turns, caller.tenant)
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
        admitted = None
        if limits is not None:
            tokens = estimator.estimate(model, len(raw))
            admitted = await limits.admit(caller.tenant, tokens)
        try:
            prefill = await prefills.submit(caller, key, body, model, ttl_s)
        finally:
            # A prefill in flight has limits of its own: it counts as a request with its tokens.
            if admitted is not None and limits is not None:
                limits.release(admitted)
        return JSONResponse(prefill.to_json(), status_code=201)

    @api.get("/prefill/{prefill_id}", summary="Look at a prefill")
    async def look(prefill_id: str, tenant: str = Depends(tenant_of)) -> dict[str, Any]:
        """Whether it is done, where, and what it took."""
        return (await found(tenant, prefill_id)).to_json()

    @api.delete("/prefill/{prefill_id}", summary="Discard a prefill: its tools have failed")
    async def discard(prefill_id: str, tenant: str = Depends(tenant_of)) -> dict[str, Any]:
        """It is stopped if it still runs, and its blocks are let go."""
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
    max_body_bytes: int,
) -> APIRouter:
    """The routes of tags and priorities."""
    api = APIRouter(prefix="/v1/hints", tags=["hints"])

    def tenant_of(request: Request) -> str:
        return auth.caller(dict(request.headers.raw)).tenant

    async def named(request: Request, tenant: str, session_id: str | None) -> ProgramKey:
        """The program that the body names or, where it names none, the headers of a call."""
        if session_id is not None:
            return program_key(tenant, from_json(session_id, "session_id"))
        identity = await identifier.announced(tenant, request.headers.raw, {})
        if identity.source == "none":
            raise errors.invalid_member(("session_id",), "must be in the body or in a header")
        return identity.key

    async def holders(key: ProgramKey) -> tuple[str, ...]:
        """The replicas that may hold a program's blocks. ApiError 404."""
        program = await table.get(key)
        if program is None:
            raise ApiError(404, "session_not_found", f"No session with id {key.program!r}.")
        return program.replicas or tuple(replica.name for replica in registry)

    @api.post(
        "/tags",
        summary="tag_kv_blocks: say what a program's prompts hold",
        openapi_extra=described(TagHint, required=True),
    )
    async def tags(request: Request, tenant: str = Depends(tenant_of)) -> dict[str, Any]:
        """Each tag's fate. What a call's own `weft.tags` say comes before them."""
        hint = await read_model(request, TagHint, max_body_bytes)
        key = await named(request, tenant, hint.session_id)
        found, fates = _tags(hint.tags)
        now = time()
        await table.tell(key, Told(told.TAGS, told.written(found), now + hint.ttl_s), now)
        return {"session_id": key.program, "object": "weft.hint", "fates": fates}

    @api.post(
        "/priority",
        summary="set_reuse_priority: say what a program's KV blocks are worth",
        openapi_extra=described(PriorityHint, required=True),
    )
    async def priority(request: Request, tenant: str = Depends(tenant_of)) -> dict[str, Any]:
        """The hint's fate at each replica that may hold the program's blocks."""
        hint = await read_model(request, PriorityHint, max_body_bytes)
        if hint.priority is None and hint.retain_s is None:
            raise errors.invalid_member(("priority",), "priority or retain_s is needed")
        key = await named(request, tenant, hint.session_id)
        names = await holders(key)
        fates: dict[str, dict[str, str]] = {}
        if hint.retain_s is not None:
            advised = (
                advisor.retain(key, names, hint.retain_s, hint.retain_tokens)
                if hint.retain_s
                else advisor.release(key, names)
            )
            fates["retain"] = await advised
        if hint.priority is not None:
            fates["priority"] = await advisor.priority(key, names, hint.priority, hint.ttl_s)
        return {"session_id": key.program, "object": "weft.hint", "fates": fates}

    return api


def _ttl(body: Mapping[str, Any]) -> float:
    ttl = body.get("ttl_s", DEFAULT_TTL_S)
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl <= 1e9:
        raise errors.invalid_member(("ttl_s",), "must be seconds, more than 0")
    return min(float(ttl), MAX_TTL_S)


def _tags(given: list[dict[str, Any]]) -> tuple[tuple[OwnTag, ...], list[str]]:
    """The tags that can be taken, and the fate of each that was given."""
    found: list[OwnTag] = []
    fates = []
    for number, value in enumerate(given):
        name = f"tags[{number}]"
        try:
            found.append(own_tag(name, value, DEFAULT_LIMITS))
        except ValueError as error:
            fates.append(f"{name}=ignored: {error}")
        else:
            fates.append(f"{name}=noted for the next calls")
    return tuple(found), fates
