"""Stored answers: what later calls may refer to is kept before the client can know of it."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from weft_gateway.calls.call import Call, Tap
from weft_gateway.calls.observers import CallObserver
from weft_gateway.calls.stored import (
    inner,
    input_of,
    item_id,
    items_of,
    output_of,
    read_events,
    response_of,
)
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.engine.sse import MAX_FRAME_BYTES
from weft_gateway.errors import ApiError
from weft_gateway.programs.identity import MAIN_THREAD
from weft_gateway.programs.ids import RESPONSE_ID, is_response_id
from weft_gateway.programs.response_store import ResponseStore, StoredResponse

# The id of the response in the first event of a stream. Engines repeat the request in that event: a
# client can inject `"id": "resp_..."` there, but not before the response's own id.
_FIRST: Final = re.compile(
    rb"(?:(?:event|id)?:[^\r\n]*\r?\n|\r?\n)*data:\s*\{"
    rb'(?:\s*"(?:type|sequence_number)"\s*:\s*(?:"[\w.]*"|\d+)\s*,)*'
    rb'\s*"response"\s*:\s*\{(?:\s*"object"\s*:\s*"\w*"\s*,)?\s*"id"\s*:\s*"(%b)"'
    % RESPONSE_ID.encode()
)


class StoredAnswers(CallObserver):
    """Stores answers, unless the client opted out. A connection keeps the others, too."""

    def __init__(self, answers: ResponseStore) -> None:
        self._answers = answers

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe calls whose answers have ids for later calls."""
        return endpoint.chained

    def sending(self, call: Call) -> None:
        """Take the call's own input from the body, which the call then drops."""
        if not call.kept or call.continued or call.items:
            return
        reading = call.reading
        if reading is not None and reading.name == "input":
            call.items = inner(bytes(reading.messages))
        else:
            # For an invalid input, the engine has the more precise error.
            with suppress(ApiError):
                call.items = input_of(call.raw)

    def streams(self, call: Call) -> Tap:
        """Read the answer's id from the first event of a stream, and the answer from the last."""
        begun = False

        def tap(data: bytes) -> bytes:
            nonlocal begun
            if not begun:
                begun = True
                found = _FIRST.match(data)
                call.response_id = found[1].decode() if found else ""
            elif not (
                # In each event that ends a response.
                b"response.completed" in data
                or b"response.incomplete" in data
                or (call.continued and b'"response"' in data)
            ):
                return data
            data, response, ended = read_events(data, call.continued)
            if ended or (response and call.in_background):
                call.response = response
                if not ended:
                    # A client may ask for it before the stream has ended.
                    for name, answer in self._entries(call).items():
                        self._answers.record(call.key, name, answer)
            return data

        return tap

    def closed(self, call: Call) -> Awaitable[None] | None:
        """Store the answer before the client can know that it is complete, so that every gateway
        finds it.
        """
        if call.body_out is not None:
            call.response = call.body_out
        if call.disowned:
            return self._forget(call)
        # No call could continue a larger one.
        fits = 0 < len(call.response) <= MAX_FRAME_BYTES
        entries = self._entries(call) if fits and call.kept else {}
        return self._answers.remember(call.key, entries) if entries else None

    def ended(self, call: Call) -> Awaitable[None] | None:
        """Forget an answer that turned out to be another call's after this call was closed."""
        return self._forget(call) if call.disowned else None

    def _entries(self, call: Call) -> dict[str, StoredResponse]:
        """Return the answer and its items by name."""
        response = response_of(call.response)
        if not is_response_id(response.id):
            return {}
        call.response_id = response.id
        name, program = call.stored_as(response.id), call.key.program
        output = output_of(call.response)
        # A client reads only answers that it has stored. Engines repeat the tools in each.
        shown = call.response if name == response.id else b'{"output":[%b]}' % output
        # Calls that continue the answer by id belong to its thread.
        thread = "" if call.identity.thread == MAIN_THREAD else call.identity.thread
        replica = call.replica if call.in_background else ""
        answer = StoredResponse(program, thread, 0.0, call.previous, replica, call.items, shown)
        pointer = StoredResponse(program, thread, 0.0, name)
        entries = {name: answer}
        with suppress(ApiError):
            ids = map(item_id, items_of(output))
            entries |= {call.stored_as(each): pointer for each in ids if each}
        return entries

    async def _forget(self, call: Call) -> None:
        if call.response_id:
            # If the store is away, the log says so.
            await self._answers.forget(call.key.tenant, call.stored_as(call.response_id))
