"""Stored answers: a call that continues one by id gets its program, thread and replica."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Final

import orjson

from weft_gateway.calls.call import Call, Tap
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.model import ProgramKey
from weft_gateway.programs.identity import MAIN_THREAD
from weft_gateway.programs.ids import RESPONSE_ID, is_response_id
from weft_gateway.programs.response_store import ResponseStore

# The id of the response in the first event of a stream. Engines repeat the request in that event: a
# client can inject `"id": "resp_..."` there, but not before the response's own id.
_STORED_STREAM: Final = re.compile(
    rb"(?:(?:event|id)?:[^\r\n]*\r?\n|\r?\n)*data:\s*\{"
    rb'(?:\s*"(?:type|sequence_number)"\s*:\s*(?:"[\w.]*"|\d+)\s*,)*'
    rb'\s*"response"\s*:\s*\{(?:\s*"object"\s*:\s*"\w*"\s*,)?\s*"id"\s*:\s*"(%b)"'
    % RESPONSE_ID.encode()
)


class StoredAnswers(CallObserver):
    """Records the replicas of stored answers, unless the client opted out."""

    def __init__(self, chains: ResponseStore) -> None:
        self._chains = chains

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe calls whose answers have ids for later calls."""
        return endpoint.chained

    def head(self, call: Call) -> Tap | None:
        """Read the answer's id from the first event of a stream."""
        if not call.is_stream:
            return None
        begun = False

        def tap(data: bytes) -> bytes:
            nonlocal begun
            if not begun:
                begun = True
                self._named(call, data)
            return data

        return tap

    def closed(self, call: Call) -> Awaitable[None] | None:
        """Store the answer before the client can know that it is complete, so that every gateway
        finds it.
        """
        if call.body_out is not None:
            call.response_id = _id_of(call.body_out)
            call.stored = bool(call.response_id) and _keeps(call)
        if call.disowned:
            return self._forget(call)
        if not call.stored:
            return None
        key, thread = _continued_as(call)
        return self._chains.remember(key, call.response_id, call.replica, thread)

    def ended(self, call: Call) -> Awaitable[None] | None:
        """Forget an answer that turned out to be another call's after this call was closed."""
        return self._forget(call) if call.disowned else None

    def _named(self, call: Call, data: bytes) -> None:
        found = _STORED_STREAM.match(data)
        if found:
            call.response_id, call.stored = found[1].decode(), _keeps(call)
            if call.stored:
                # A client may continue before the stream has ended.
                key, thread = _continued_as(call)
                self._chains.record(key, call.response_id, call.replica, thread)

    async def _forget(self, call: Call) -> None:
        if call.response_id:
            await self._chains.forget(call.key.tenant, call.response_id)


def _keeps(call: Call) -> bool:
    return call.body.get("store") is not False


def _continued_as(call: Call) -> tuple[ProgramKey, str]:
    """Return the program and thread of a call that continues this answer by id."""
    thread = call.identity.thread
    return call.key, "" if thread == MAIN_THREAD else thread


def _id_of(body: bytes) -> str:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    found = parsed.get("id") if isinstance(parsed, dict) else None
    return found if isinstance(found, str) and is_response_id(found) else ""
