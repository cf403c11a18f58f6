"""Converts messages of a Responses WebSocket to bodies of `POST /v1/responses`. Pure.

A client may continue the last answer of its connection by `previous_response_id` and send only the
new items, even if that answer is not stored (`store: false`). Engines do not know connections, so
the last turn's items are stored here and put before the new ones.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from weft_gateway import errors
from weft_gateway.api.body import check_depth, json_value, raw_members
from weft_gateway.errors import ApiError

CREATE: Final = "response.create"
# Codex reports with it that it has used an answer. It has no effect here.
_PROCESSED: Final = "response.processed"
# Events that end a response and contain all of it.
TERMINAL: Final = (b"response.completed", b"response.incomplete")
FAILED: Final = b"response.failed"
_MOST_NAME: Final = 4096


@dataclass(slots=True)
class Turn:
    """One `response.create`.

    body: for `POST /v1/responses`. items: the complete input as comma-separated JSON items. before:
    id of the stored answer that the input continues, or "". asked: id that the client has continued
    if the engine receives a different one, or "". generate: False if the client only prepares a
    later turn.
    """

    body: bytes
    items: bytes
    before: str
    model: Any
    generate: bool
    asked: str = ""


@dataclass(slots=True)
class _Last:
    """The connection's last answer: its id, and all items including it."""

    response_id: str
    items: bytes
    before: str


class Turns:
    """The turns of one connection. limit: maximum body size in bytes, and of the stored items."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._last: _Last | None = None

    @property
    def kept_bytes(self) -> int:
        """Size of the stored items in bytes."""
        return 0 if self._last is None else len(self._last.items)

    def forget(self) -> None:
        """Drop the stored items: the next turn cannot continue the last one here."""
        self._last = None

    def read(self, text: str) -> Turn | None:
        """Return the turn that a message requests, None if it requests none. Raises ApiError."""
        members = raw_members(text.encode("utf-8", "surrogatepass"))
        kind = _small(members.pop("type", None))
        if kind == _PROCESSED:
            return None
        if kind != CREATE:
            raise ApiError(
                400, "unknown_event", f"type: only {CREATE!r} is known here.", param="type"
            )
        generate = _small(members.pop("generate", None)) is not False
        # A connection only supports foreground responses.
        members.pop("background", None)
        items = _items(members.get("input"))
        before, model = _small(members.get("previous_response_id")), _small(members.get("model"))
        # The call parses the body, with the limits of every other call. Here it is only assembled.
        body: dict[str, Any] = {
            name: orjson.Fragment(bytes(value)) for name, value in members.items()
        }
        body["stream"] = True
        last, asked = self._last, ""
        if last is not None and before == last.response_id:
            items = b",".join(part for part in (last.items, items) if part)
            asked = last.response_id
            before = body["previous_response_id"] = last.before or None
            body["input"] = orjson.Fragment(b"[%b]" % items)
        raw = orjson.dumps(body)
        if len(raw) > self._limit:
            raise ApiError(
                413, "body_too_large", f"The input of this turn is larger than {self._limit} bytes."
            )
        known = before if isinstance(before, str) else ""
        return Turn(raw, items, known, model, generate, asked)

    def answered(self, turn: Turn, event: bytes) -> None:
        """Store the answer of a terminal event for the next turn."""
        try:
            response = msgspec.json.decode(event, type=_Terminal).response
            output = _items(response.output)
        except (msgspec.DecodeError, ApiError, RecursionError):
            return
        self._keep(response.id, turn, output)

    def prepared(self, turn: Turn, now_s: float) -> list[bytes]:
        """Return the events for a turn that generates no answer. Its input is stored for the next
        turn.
        """
        response = {
            "id": f"resp_{os.urandom(12).hex()}",
            "object": "response",
            "created_at": int(now_s),
            "status": "in_progress",
            "model": turn.model,
            "previous_response_id": turn.asked or turn.before or None,
            "output": [],
            "usage": None,
        }
        self._keep(str(response["id"]), turn, b"")
        usage = {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 0,
        }
        done = response | {"status": "completed", "usage": usage}
        return [
            orjson.dumps({"type": kind, "sequence_number": number, "response": of})
            for number, (kind, of) in enumerate(
                (("response.created", response), ("response.completed", done))
            )
        ]

    @staticmethod
    def as_asked(turn: Turn, event: bytes) -> bytes:
        """Return an event of the turn's answer with the id that the client has continued."""
        if not turn.asked or b'"response"' not in event:
            return event
        try:
            members = msgspec.json.decode(event, type=dict[str, msgspec.Raw])
            response = msgspec.json.decode(members["response"], type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, KeyError, RecursionError):
            return event
        response["previous_response_id"] = msgspec.Raw(orjson.dumps(turn.asked))
        members["response"] = msgspec.Raw(msgspec.json.encode(response))
        return msgspec.json.encode(members)

    def _keep(self, response_id: str, turn: Turn, output: bytes) -> None:
        items = b",".join(part for part in (turn.items, output) if part)
        fits = len(items) <= self._limit
        self._last = _Last(response_id, items, turn.before) if fits else None


class _Response(msgspec.Struct):
    id: str
    output: msgspec.Raw


class _Terminal(msgspec.Struct):
    response: _Response


def _small(value: msgspec.Raw | None) -> Any:
    """Return the value of a member that is a name or a flag; None if it is much longer."""
    if value is None or len(value) > _MOST_NAME:
        return None
    found = json_value(bytes(value))
    # An event may contain the value, so it must be encodable.
    check_depth(found)
    return found


def _items(value: msgspec.Raw | None) -> bytes:
    """Return input or output as comma-separated JSON items. Raises ApiError."""
    raw = b"null" if value is None else bytes(value).strip()
    if raw == b"null":
        return b""
    if raw.startswith(b'"'):
        return b'{"type":"message","role":"user","content":%b}' % raw
    if not raw.startswith(b"["):
        raise errors.invalid_member(("input",), "must be a string or a list of items")
    return raw[1:-1].strip()
