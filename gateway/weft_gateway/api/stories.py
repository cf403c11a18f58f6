"""Receipts and stories: why a call went where it went, and what came of it; a program's events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import time
from typing import Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse

from weft_gateway.api.auth import Authenticator
from weft_gateway.api.sessions import path_id, program_key
from weft_gateway.errors import ApiError
from weft_gateway.model import ProgramKey
from weft_gateway.overlap.dispatch import EVENT
from weft_gateway.programs.table import ProcessTable
from weft_gateway.telemetry import threads
from weft_gateway.telemetry.listeners import Listeners
from weft_gateway.telemetry.receipts import Receipts

# So that proxies between do not take a quiet stream for a dead one.
_PULSE_S: Final = 15.0


def router(
    auth: Authenticator, table: ProcessTable, receipts: Receipts, listeners: Listeners
) -> APIRouter:
    """The routes."""
    api = APIRouter()

    def tenant_of(request: Request) -> str:
        return auth.caller(dict(request.headers.raw)).tenant

    @api.get(
        "/v1/receipts/{request_id:path}", tags=["receipts"], summary="Look at a call's receipt"
    )
    async def receipt(
        request: Request, request_id: str, tenant: str = Depends(tenant_of)
    ) -> dict[str, Any]:
        """Replica chosen and rejected with scores, order, predicted against actual, hints and their
        fate, waits, swaps, seconds saved. The gateway that served the call knows it, for a while.
        """
        # An id may itself hold what looks encoded: as it is in the URL, then decoded.
        raw = request.scope.get("raw_path", b"").partition(b"/receipts/")[2].decode("latin-1")
        found = receipts.find(tenant, raw, time()) or receipts.find(tenant, request_id, time())
        if found is None:
            raise ApiError(404, "receipt_not_found", f"No receipt of the request {request_id!r}.")
        return found.to_json()

    @api.get(
        "/v1/sessions/{session_id}/story", tags=["receipts"], summary="Look at a session's calls"
    )
    async def story(session_id: str, tenant: str = Depends(tenant_of)) -> dict[str, Any]:
        """The receipts of a session's calls, in the order of their arrival, those of refused ones
        apart; and what they tell of its threads, ended ones too: when each began and ended and how,
        which came from which and which were joined, and which calls the longest path is made of."""
        key = program_key(tenant, path_id(session_id))
        told = receipts.story(key, time())
        if not told and await table.get(key) is None:
            raise ApiError(404, "session_not_found", f"No session with id {key.program!r}.")
        saved: dict[str, float] = {}
        for one in told:
            for overlap, seconds in (one.saved_s or {}).items():
                saved[overlap] = saved.get(overlap, 0.0) + seconds
        return {
            "object": "session.story",
            "session": key.program,
            "saved_s": saved,
            **threads.to_json(told),
            "receipts": [one.to_json() for one in told if one.outcome != "refused"],
            "refused": [one.to_json() for one in told if one.outcome == "refused"],
        }

    @api.get(
        "/v1/sessions/{session_id}/events",
        tags=["hints"],
        summary="register_streaming_callback: a session's tool calls as they complete",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events(session_id: str, tenant: str = Depends(tenant_of)) -> StreamingResponse:
        """Server-sent events `tool_call_dispatch`, from now on, of the session's calls through this
        gateway; each has the id of its request. What a stream calls is told as it completes, what
        another answer calls when it has ended. A listener that is too slow loses the oldest, and is
        told how many by an event `lost`. 404 for a session that is not there; 429 where it, or its
        tenant, has as many listeners as it may."""
        key = program_key(tenant, path_id(session_id))
        if await table.get(key) is None:
            raise ApiError(404, "session_not_found", f"No session with id {key.program!r}.")
        if listeners.full(key):
            raise ApiError(
                429, "too_many_listeners", "This session, or its tenant, has too many listeners."
            )
        return StreamingResponse(
            _told(listeners, key),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    return api


async def _told(listeners: Listeners, key: ProgramKey) -> AsyncIterator[bytes]:
    # Not before: of a client that has left by now, nobody would come to the end of this.
    listener = listeners.add(key)
    if listener is None:
        return
    lost = 0
    try:
        yield b": listening\n\n"
        while True:
            try:
                event = await asyncio.wait_for(listener.get(), _PULSE_S)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if event is None:
                return
            if listener.lost > lost:
                yield b'event: lost\ndata: {"events":%d}\n\n' % (listener.lost - lost)
                lost = listener.lost
            yield b"event: %b\ndata: %b\n\n" % (EVENT.encode(), event)
    finally:
        listeners.remove(key, listener)
