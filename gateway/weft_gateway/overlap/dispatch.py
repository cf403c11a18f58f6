"""`event: tool_call_dispatch`: reports complete tool calls between the frames of a stream.

The event's name and the fields `choice_index` and `tool_call` are Dynamo's. The data is also a
chunk of the stream's API without choices: clients that read the name recognise it, and clients that
parse every frame as a chunk, as OpenAI's do, skip it. In streams of Anthropic's Messages API it is
a `ping`, the one type that every client skips; some clients refuse unknown types. Sans-I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from weft_gateway.overlap.events import EventReader
from weft_gateway.overlap.tool_calls import ToolCall, ToolCallParser

EVENT: Final = "tool_call_dispatch"
HEADER: Final = b"x-weft-tool-dispatch"
FIELD: Final = "tool_dispatch"

_ON: Final = (b"1", b"true")
# A chunk without one of these has no call and ends no call. All servers write the keys in the same
# way.
_TELLING: Final = (b'"tool_calls"', b"tool_use", b"function_call", b"input_json")
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
    bytes pass unchanged and the calls are only returned. Bytes are never held back.
    """

    __slots__ = ("_insert", "_loads", "_parser", "_reader", "_text")

    def __init__(
        self,
        *,
        insert: bool = True,
        names: Container[str] | None = None,
        text: bool = True,
        loads: Callable[[bytes | str], Any] = json.loads,
    ) -> None:
        """names, text: see ToolCallParser. loads: raises ValueError for invalid JSON."""
        self._insert = insert
        self._text = text
        self._loads = loads
        self._reader = EventReader()
        self._parser = ToolCallParser(names=names, text=text, loads=loads)

    def feed(self, data: bytes) -> tuple[bytes, Sequence[ToolCall]]:
        """Take bytes for the client. Returns the bytes to send now, and the calls that are now
        complete.
        """
        if self._passes(data):
            return data, ()
        calls: list[ToolCall] = []
        out: list[bytes] = []
        sent = 0
        for event in self._reader.feed(data):
            if not (self._text or self._parser.in_call or _tells(event.data)):
                continue
            try:
                chunk = self._loads(event.data)
            except (ValueError, RecursionError):
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

    def _passes(self, data: bytes) -> bool:
        """Whether these are whole frames without calls, which need no parsing: the usual case."""
        return not (
            self._text or self._parser.in_call or not self._reader.between_events or _tells(data)
        ) and data.endswith(b"\n\n")


def _tells(data: bytes) -> bool:
    return any(word in data for word in _TELLING)
