"""`event: tool_call_dispatch`: reports complete tool calls between the frames of a stream.

The event's name and the fields `choice_index` and `tool_call` are Dynamo's. The data is also a
chunk of the stream's API without choices: clients that read the name recognise it, and clients that
parse every frame as a chunk, as OpenAI's do, skip it. In streams of Anthropic's Messages API it is
a `ping`, the one type that every client skips; some clients refuse unknown types. Sans-I/O.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

import orjson

from weft_gateway.overlap.events import EventReader
from weft_gateway.overlap.tool_calls import ToolCall, ToolCallParser

EVENT: Final = "tool_call_dispatch"
HEADER: Final = b"x-weft-tool-dispatch"
FIELD: Final = "tool_dispatch"

_ON: Final = (b"1", b"true")
_CHUNK_FIELDS: Final = ("id", "object", "created", "model")


def opted_in(header: bytes | None, hints: Any) -> bool:
    """Whether a client requests the event: `x-weft-tool-dispatch: 1`, or `"tool_dispatch": true` in
    the body's `weft` object. The header takes precedence.
    """
    if header is not None:
        return header.strip().lower() in _ON
    return isinstance(hints, dict) and hints.get(FIELD) is True


def as_json(call: ToolCall) -> dict[str, Any]:
    """Return a call in Dynamo's form."""
    return {
        "choice_index": call.choice,
        "tool_call": {
            "index": call.index,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        },
    }


def frame(call: ToolCall, chunk: Mapping[str, Any]) -> bytes:
    """Return the bytes of the event for a call that `chunk` has completed."""
    if isinstance(chunk.get("choices"), list):
        data = {field: chunk[field] for field in _CHUNK_FIELDS if field in chunk} | {"choices": []}
    else:
        responses = str(chunk.get("type")).startswith("response.")
        data = {"type": EVENT if responses else "ping"}
    text = json.dumps(data | as_json(call), separators=(",", ":"))
    return f"event: {EVENT}\ndata: {text}\n\n".encode()


class ToolDispatch:
    """Watches one stream on its way to the client, and can add events to it.

    insert: add `event: tool_call_dispatch` after the frame that completes a call. Without it, the
    bytes pass unchanged and the calls are only returned. Bytes are never held back. names: see
    ToolCallParser.
    """

    __slots__ = ("_insert", "_parser", "_reader")

    def __init__(self, *, insert: bool = True, names: Container[str] | None = None) -> None:
        self._insert = insert
        self._reader = EventReader()
        self._parser = ToolCallParser(names)

    def feed(self, data: bytes) -> tuple[bytes, Sequence[ToolCall]]:
        """Take bytes for the client. Returns the bytes to send now, and the calls that are now
        complete.
        """
        calls: list[ToolCall] = []
        out: list[bytes] = []
        sent = 0
        for event in self._reader.feed(data):
            try:
                chunk = orjson.loads(event.data)
            except orjson.JSONDecodeError:
                continue  # `[DONE]`, or a frame that the client must judge.
            found = self._parser.feed(chunk)
            if found and self._insert:
                out += (data[sent : event.end], *(frame(call, chunk) for call in found))
                sent = event.end
            calls += found
        if not sent:
            return data, calls
        out.append(data[sent:])
        return b"".join(out), calls
