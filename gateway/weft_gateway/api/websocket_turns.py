"""Converts messages of a Responses WebSocket to bodies of `POST /v1/responses`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from weft_gateway.api.body import check_depth, json_value, raw_members
from weft_gateway.errors import ApiError

CREATE: Final = "response.create"
# Codex reports with it that it has used an answer. It has no effect here.
_PROCESSED: Final = "response.processed"
_MOST_NAME: Final = 4096


@dataclass(slots=True)
class Turn:
    """One `response.create`. body: for `POST /v1/responses`. previous: the id of the answer that it
    continues, or "". generate: False if the client only prepares a later turn.
    """

    body: bytes
    previous: str
    model: Any
    generate: bool


def read_turn(text: str) -> Turn | None:
    """Return the turn that a message requests, None if it requests none. Raises ApiError."""
    members = raw_members(text.encode("utf-8", "surrogatepass"))
    kind = _small(members.pop("type", None))
    if kind == _PROCESSED:
        return None
    if kind != CREATE:
        raise ApiError(400, "unknown_event", f"type: only {CREATE!r} is known here.", param="type")
    generate = _small(members.pop("generate", None)) is not False
    # A connection only supports foreground responses.
    members.pop("background", None)
    previous, model = _small(members.get("previous_response_id")), _small(members.get("model"))
    # The call parses the body, with the limits of every other call. Here it is only assembled.
    body: dict[str, Any] = {name: orjson.Fragment(bytes(value)) for name, value in members.items()}
    body["stream"] = True
    return Turn(orjson.dumps(body), previous if isinstance(previous, str) else "", model, generate)


def prepared_events(turn: Turn, response_id: str, now_s: float) -> list[dict[str, Any]]:
    """Return the events for a turn that generates no answer."""
    response = {
        "id": response_id,
        "object": "response",
        "created_at": int(now_s),
        "status": "in_progress",
        "model": turn.model,
        "previous_response_id": turn.previous or None,
        "output": [],
        "usage": None,
    }
    usage = {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    }
    done = response | {"status": "completed", "usage": usage}
    return [
        {"type": kind, "sequence_number": number, "response": of}
        for number, (kind, of) in enumerate(
            (("response.created", response), ("response.completed", done))
        )
    ]


def _small(value: Any) -> Any:
    """Return the value of a member that is a name or a flag; None if it is much longer."""
    if value is None or len(value) > _MOST_NAME:
        return None
    found = json_value(bytes(value))
    # An event may contain the value, so it must be encodable.
    check_depth(found)
    return found
