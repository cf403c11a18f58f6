"""Puts what a request of the Responses API refers to in the place of its name.

A request may continue an answer (`previous_response_id`), and may name items of answers
(`item_reference`). The engine gets the whole input, so any replica can serve the call, and the
prompt is that of a client which sends its whole history.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import orjson

from weft_gateway import errors
from weft_gateway.api.body import is_skimmed, raw_members
from weft_gateway.calls.background import BackgroundCalls
from weft_gateway.calls.call import Call
from weft_gateway.calls.stored import (
    UNFINISHED,
    input_of,
    item_id,
    items_of,
    output_of,
    reference,
    response_of,
)
from weft_gateway.calls.turns import LIGHT_BYTES, Turns
from weft_gateway.config import Settings
from weft_gateway.errors import ApiError
from weft_gateway.programs.ids import is_item_id, is_response_id
from weft_gateway.programs.response_store import ResponseStore, StoredResponse

_REFERENCE = b'"item_reference"'


@dataclass(frozen=True, slots=True)
class History:
    """Completes requests."""

    answers: ResponseStore
    background: BackgroundCalls
    turns: Turns
    settings: Settings

    def complete(self, call: Call) -> Awaitable[bytes] | None:
        """Return an awaitable of the complete body if the call refers to stored items. Raises
        ApiError; the awaitable also TableUnavailable.
        """
        if call.body.get("conversation") is not None:
            # Engines ignore it, and the model would not see the conversation.
            raise ApiError(
                404,
                "conversation_not_found",
                "No conversation is stored here. Continue with previous_response_id, or send the "
                "whole input.",
                param="conversation",
            )
        if call.body.get("previous_response_id") is None and not _has_references(call):
            return None
        return self._completed(call)

    async def before(self, call: Call, previous: Any) -> list[bytes]:
        """Return the items before those of a call that continues an answer, and set the answer's
        name. Raises ApiError and TableUnavailable.
        """
        if not isinstance(previous, str):
            raise errors.invalid_member(("previous_response_id",), "must be a string")
        if not is_response_id(previous):
            raise errors.previous_response_not_found(previous)
        tenant, chain = call.caller.tenant, None
        for name in _names(call, previous):
            try:
                found = await self.answers.chain(tenant, name, self.settings.max_body_bytes)
            except KeyError:
                continue
            call.continued, call.previous = previous, name
            chain = [*found.values()]
            break
        if not (chain and chain[0].response):
            raise errors.previous_response_not_found(previous)
        if response_of(chain[0].response).status in UNFINISHED:
            settled = await self.settled(tenant, call.previous, chain[0])
            if settled is None:
                raise errors.previous_response_not_found(previous)
            chain[0] = settled
            if response_of(settled.response).status in UNFINISHED:
                raise ApiError(
                    400,
                    "response_in_progress",
                    f"Response with id '{previous}' is not finished.",
                    param="previous_response_id",
                )
        if sum([answer.size for answer in chain]) > self.settings.max_body_bytes:
            raise self._too_large()
        return [part for answer in reversed(chain) for part in (answer.items, _output(answer))]

    async def settled(
        self, tenant: str, name: str, answer: StoredResponse
    ) -> StoredResponse | None:
        """Return an answer with its present response, None if it is lost. Raises ApiError."""
        try:
            return await self.background.settled(tenant, name, answer)
        except httpx.HTTPError:
            raise errors.of("no_replica") from None

    async def _completed(self, call: Call) -> bytes:
        previous = call.body.get("previous_response_id")
        members = raw_members(call.raw)
        call.items = input_of(call.raw)
        pieces = [] if previous is None else await self.before(call, previous)
        joined = b",".join(filter(None, (*pieces, call.items)))
        if call.held is not None:
            call.held.take(len(call.raw) + len(joined))
        if len(joined) > LIGHT_BYTES:
            await self.turns.take(call.caller.tenant, len(joined))
        if _REFERENCE in joined or _has_references(call):
            joined = await self._resolved(call, joined)
        body: dict[str, Any] = {
            name: orjson.Fragment(bytes(value))
            for name, value in members.items()
            if name != "previous_response_id"
        }
        body["input"] = orjson.Fragment(b"[%b]" % joined)
        raw = orjson.dumps(body)
        if len(raw) > self.settings.max_body_bytes:
            raise self._too_large()
        return raw

    async def _resolved(self, call: Call, joined: bytes) -> bytes:
        """Return items with those that they refer to in their place."""
        pieces: list[bytes | msgspec.Raw] = []
        known: dict[str, msgspec.Raw] = {}
        size, searched = 0, len(call.raw) + len(joined)
        for piece in items_of(joined):
            name = reference(piece)
            if name is not None and name not in known:
                searched += await self._look_up(call, name, known)
                if call.held is not None:
                    call.held.take(searched)
            pieces.append(piece if name is None else known[name])
            size += len(pieces[-1])
            if size > self.settings.max_body_bytes:
                raise self._too_large()
        if call.held is not None:
            call.held.take(len(call.raw) + size)
        return b",".join(map(bytes, pieces))

    async def _look_up(self, call: Call, item: str, known: dict[str, msgspec.Raw]) -> int:
        """Add an answer's items to those by id. Returns their bytes. Raises ApiError 404."""
        tenant, size = call.caller.tenant, 0
        for name in _names(call, item) if is_item_id(item) else ():
            entry = await self.answers.find(tenant, name)
            answer = entry and await self.answers.find(tenant, entry.previous)
            if answer:
                size += answer.size
                await self.turns.take(tenant, answer.size)
                known.update((item_id(each), each) for each in items_of(_output(answer)))
        if item not in known:
            raise ApiError(
                404, "item_not_found", f"Item with id '{item[:256]}' not found.", param="input"
            )
        return size

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            "body_too_large",
            "With the items that it refers to, the request is larger than "
            f"{self.settings.max_body_bytes} bytes.",
        )


def _output(answer: StoredResponse) -> bytes:
    return output_of(answer.response)


def _names(call: Call, name: str) -> tuple[str, ...]:
    """Return the names that an id may have in the store."""
    return (name,) if call.connection is None else (call.connection.name(name), name)


def _has_references(call: Call) -> bool:
    given = call.body.get("input")
    if not isinstance(given, list):
        return is_skimmed(call.body) and _REFERENCE in call.raw
    return any(
        type(item) is dict
        and item.get("type", "item_reference") == "item_reference"
        and "id" in item
        and "role" not in item
        for item in given
    )
