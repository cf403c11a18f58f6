"""Sessions: the handles of programs in the HTTP API. A tenant sees its own only."""

from __future__ import annotations

import secrets
from time import time
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Body, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from gateway.api.errors import ApiError
from gateway.api.services import Services
from gateway.model import Program, ProgramKey
from gateway.programs.identity import MAX_ID_BYTES


class NewSession(BaseModel):
    """What a client may say about a session that it starts."""

    id: str | None = Field(None, description="opaque, at most 256 bytes; made up where missing")
    metadata: dict[str, Any] | None = Field(None, description="given back, and not kept")


def session_json(program: Program) -> dict[str, Any]:
    """A program as the API shows it. Instants are Unix seconds; durations are seconds."""
    return {
        "id": program.key.program,
        "object": "session",
        "created_at": program.arrival_s,
        "service_s": program.service_s,
        "waiting_s": program.waiting_s,
        "critical_path_s": program.critical_path_s,
        "calls": program.calls,
        "calls_in_flight": len(program.threads),
        "errors": program.errors,
        "prompt_tokens": program.prompt_tokens,
        "cached_tokens": program.cached_tokens,
        "output_tokens": program.output_tokens,
        "preemptions": program.preemptions,
        "replicas": list(program.replicas),
        "threads": [
            {
                "call": thread.call,
                "thread": thread.thread,
                "replica": thread.replica,
                "arrival": thread.arrival_s,
                "waiting_s": thread.waiting_s,
                "service_s": thread.service_s,
            }
            for thread in program.threads
        ],
        "last_call_arrival": program.last_arrival_s or None,
        "last_call_completion": program.last_completion_s or None,
    }


def router(services: Services) -> APIRouter:
    """The routes. Ids in paths are percent-encoded: the dispatcher keeps them so."""
    api = APIRouter(tags=["sessions"])

    def key(request: Request, session_id: str) -> ProgramKey:
        tenant = services.auth.caller(dict(request.headers.raw)).tenant
        return ProgramKey(tenant, checked_id(session_id))

    def not_found(session_id: str) -> ApiError:
        return ApiError(404, "session_not_found", f"No session with id {session_id!r}.")

    @api.post("/v1/sessions", status_code=201, summary="Start a session")
    async def create(
        request: Request, new: Annotated[NewSession | None, Body()] = None
    ) -> JSONResponse:
        """Create a program before its first call. 200 instead of 201 where it existed."""
        new = new or NewSession(id=None, metadata=None)
        wanted = key(request, new.id if new.id is not None else f"sess-{secrets.token_hex(12)}")
        program, created = await services.table.start(wanted, time())
        if created:
            services.metrics.programs.inc()
        answer = session_json(program)
        if new.metadata is not None:
            answer["metadata"] = new.metadata
        return JSONResponse(answer, status_code=201 if created else 200)

    @api.get("/v1/sessions", summary="List sessions")
    async def list_sessions(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
        after: Annotated[str, Query(description="the last id of the page before")] = "",
    ) -> dict[str, Any]:
        """The tenant's sessions in the order of their ids."""
        tenant = services.auth.caller(dict(request.headers.raw)).tenant
        found = await services.table.programs(tenant, limit + 1, after)
        data = [session_json(program) for program in found[:limit]]
        return {
            "object": "list",
            "data": data,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
            "has_more": len(found) > limit,
        }

    @api.get("/v1/sessions/{session_id}", summary="Look at a session")
    async def get(request: Request, session_id: str) -> dict[str, Any]:
        """What the process table knows about a program."""
        session_id = decoded_id(session_id)
        program = await services.table.get(key(request, session_id))
        if program is None:
            raise not_found(session_id)
        return session_json(program)

    @api.delete("/v1/sessions/{session_id}", summary="End a session")
    async def delete(request: Request, session_id: str) -> dict[str, Any]:
        """End a program; the answer has its totals. Calls in flight are finished, and its row goes
        with the last of them."""
        session_id = decoded_id(session_id)
        program = await services.end_program(key(request, session_id), time())
        if program is None:
            raise not_found(session_id)
        return session_json(program) | {"object": "session.deleted", "deleted": True}

    @api.post("/finish_session", summary="End a session (vllm-router's name for it)")
    async def finish(request: Request, session_id: Annotated[str, Query()]) -> dict[str, Any]:
        """The same as DELETE, for clients of vllm-router."""
        if await services.end_program(key(request, session_id), time()) is None:
            raise not_found(session_id)
        return {"session_id": session_id, "finished": True}

    return api


def decoded_id(segment: str) -> str:
    """The id that a percent-encoded path segment names. Bytes that are not UTF-8 stay distinct as
    Latin-1, as they do in headers."""
    raw = unquote_to_bytes(segment)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def checked_id(session_id: str) -> str:
    """The id, if it is one. ApiError 400 if it is empty or longer than 256 bytes."""
    size = len(session_id.encode("utf-8", "surrogatepass"))
    if size == 0:
        raise ApiError(400, "session_id_empty", "A session id must not be empty.", param="id")
    if size > MAX_ID_BYTES:
        raise ApiError(
            400,
            "session_id_too_long",
            f"A session id has at most {MAX_ID_BYTES} bytes; this one has {size}.",
            param="id",
        )
    return session_id
