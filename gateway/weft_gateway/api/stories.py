"""Receipts of calls, the calls of a session, and its event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import time
from typing import Any

import orjson
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse

from weft_gateway import errors
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.lists import listed
from weft_gateway.api.sessions import path_id, program_key
from weft_gateway.calls.turns import Turns
from weft_gateway.errors import ApiError
from weft_gateway.model import ProgramKey
from weft_gateway.overlap.dispatch import EVENT
from weft_gateway.programs.table import ProcessTable
from weft_gateway.telemetry import prompts, threads
from weft_gateway.telemetry.listeners import Listeners
from weft_gateway.telemetry.receipts import Receipt, Receipts


class EventStream(StreamingResponse):
    """An answer that is a stream of server-sent events."""

    media_type = "text/event-stream"


def router(
    auth: Authenticator,
    table: ProcessTable,
    receipts: Receipts,
    listeners: Listeners,
    turns: Turns,
) -> APIRouter:
    """Create the routes of receipts, session calls and event streams."""
    api = APIRouter()

    @api.get(
        "/v1/receipts/{request_id:path}",
        tags=["receipts"],
        summary="Get the receipt of a call",
    )
    async def get_receipt(
        request: Request, request_id: str, tenant: str = Depends(auth.tenant)
    ) -> dict[str, Any]:
        """Replicas chosen and rejected with their scores, the order, predicted against actual
        figures, each hint's fate, waits, swaps and seconds saved. Ask the gateway that served the
        call: it keeps the receipt for an hour. `request_id` is the call's
        `x-request-id`."""
        # An id may contain percent signs, so the raw form is looked up first.
        raw = request.scope.get("raw_path", b"").partition(b"/receipts/")[2].decode("latin-1")
        found = receipts.find(tenant, raw, time()) or receipts.find(tenant, request_id, time())
        if found is None:
            raise ApiError(404, "receipt_not_found", f"No receipt of the request {request_id!r}.")
        return found.to_json(auth.name(tenant))

    async def receipts_of(tenant: str, found: Iterable[Receipt]) -> orjson.Fragment:
        name = auth.name(tenant)
        return await listed(turns, tenant, found, lambda receipt: receipt.to_json(name))

    @api.get(
        "/v1/sessions/{session_id}/story",
        tags=["receipts"],
        summary="List the calls of a session",
    )
    async def get_story(session_id: str, tenant: str = Depends(auth.tenant)) -> Response:
        """The receipts of the session's calls in the order of arrival, with refused calls apart,
        and a summary of them: every thread with its start, end, parent and joins, the calls on the
        critical path, and where the tokens of the prompts came from."""
        key = program_key(tenant, path_id(session_id))
        found = receipts.story(key, time())
        if not found and await table.get(key) is None:
            raise errors.of("session_not_found", name=key.program)
        saved: dict[str, float] = {}
        for one in found:
            for overlap, seconds in (one.saved_s or {}).items():
                saved[overlap] = saved.get(overlap, 0.0) + seconds
        story = {
            "object": "session.story",
            "session": key.program,
            "saved_s": saved,
            "prompt": prompts.summary(one.sources for one in found),
            **threads.to_json(found),
            "receipts": await receipts_of(tenant, (r for r in found if r.outcome != "refused")),
            "refused": await receipts_of(tenant, (r for r in found if r.outcome == "refused")),
        }
        return Response(orjson.dumps(story), media_type="application/json")

    @api.get(
        "/v1/sessions/{session_id}/events",
        tags=["hints"],
        summary="register_streaming_callback: a session's tool calls as they complete",
        response_class=EventStream,
    )
    async def listen_to_session(
        session_id: str, tenant: str = Depends(auth.tenant)
    ) -> StreamingResponse:
        """Server-sent events `tool_call_dispatch` of the session's calls through this gateway, from
        now on. Each event has the id of its request. A streamed answer's tool call is sent when it
        completes, any other answer's when the answer has ended. A slow listener loses the oldest
        events; an event `lost` contains their number. 404 if the session does not exist; 429 if it
        or its tenant has too many listeners."""
        key = program_key(tenant, path_id(session_id))
        if await table.get(key) is None:
            raise errors.of("session_not_found", name=key.program)
        if listeners.full(key):
            raise ApiError(
                429, "too_many_listeners", "This session, or its tenant, has too many listeners."
            )
        return EventStream(_events(listeners, key), headers={"cache-control": "no-store"})

    return api


async def _events(listeners: Listeners, key: ProgramKey) -> AsyncIterator[bytes]:
    # Registered only here: if the client has already disconnected, this generator neither starts
    # nor ends.
    listener = listeners.add(key)
    if listener is None:
        return
    lost = 0
    try:
        yield b": listening\n\n"
        while True:
            try:
                event = await asyncio.wait_for(listener.get(), listeners.heartbeat_s)
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
