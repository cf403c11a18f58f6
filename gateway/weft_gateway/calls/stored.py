"""The JSON of the Responses API, as far as stored answers need it. Pure.

Items are kept as the text that clients and engines sent, with commas between them: the engine then
sees the bytes that a client with the whole history would send.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec
import orjson

from weft_gateway import errors
from weft_gateway.programs.ids import is_item_id

# Events that end a response and contain all of it.
TERMINAL: Final = ("response.completed", "response.incomplete")
# The states of a response that an engine still works on.
UNFINISHED: Final = ("queued", "in_progress")
# An item of more bytes is no reference.
_MOST_REFERENCE: Final = 1024
# Each item takes about 2 us. Counting stops at the first one that is wrong or too many.
_MOST_ITEMS: Final = 10_000


class Response(msgspec.Struct):
    """A response. output: its items."""

    id: str = ""
    status: str = "completed"
    background: bool | None = None
    output: msgspec.Raw = msgspec.Raw(b"null")


class _Item(msgspec.Struct):
    id: str | None = None
    type: str | None = None
    role: Any = None


class _Counted(msgspec.Struct):
    made: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _Counted.made += 1
        if _Counted.made > _MOST_ITEMS:
            raise ValueError


class _Event(msgspec.Struct):
    type: str
    response: msgspec.Raw


_decode_response: Final = msgspec.json.Decoder(Response).decode
_decode_event: Final = msgspec.json.Decoder(_Event).decode
_decode_item: Final = msgspec.json.Decoder(_Item).decode
_count: Final = msgspec.json.Decoder(list[_Counted]).decode
_split: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_WRONG: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def response_of(text: bytes) -> Response:
    """Return a parsed response, one without an id for anything else."""
    try:
        return _decode_response(text)
    except _WRONG:
        return Response()


def input_of(raw: bytes) -> bytes:
    """Return the items of a request's input. Raises ApiError."""
    value = bytes(_members(raw).get("input", b"null")).strip()
    if value.startswith(b'"'):
        return b'{"type":"message","role":"user","content":%b}' % value
    if value != b"null" and not value.startswith(b"["):
        raise errors.invalid_member(("input",), "must be a string or a list of items")
    return inner(value)


def output_of(response: bytes) -> bytes:
    """Return the items of a response's output."""
    return inner(bytes(response_of(response).output).strip())


def inner(value: bytes) -> bytes:
    """Return the items of a list, b"" for anything else."""
    return value[1:-1].strip() if value.startswith(b"[") else b""


def items_of(joined: bytes) -> list[msgspec.Raw]:
    """Split joined items. Raises ApiError 400 for one that is no object, and for too many."""
    whole, _Counted.made = b"[%b]" % joined, 0
    try:
        _count(whole)
    except msgspec.ValidationError:
        if _Counted.made > _MOST_ITEMS:
            what = f"References and lists of items support {_MOST_ITEMS} items."
            raise errors.ApiError(400, "too_complex", what, param="input") from None
        raise errors.invalid_member(("input",), "must be a string or a list of items") from None
    return _split(whole)


def item_id(item: msgspec.Raw) -> str:
    """Return the id of an item, "" if it has none that can be stored."""
    try:
        found = _decode_item(item).id
    except _WRONG:
        return ""
    return found if found is not None and is_item_id(found) else ""


def named_item(item: msgspec.Raw, name: str) -> orjson.Fragment:
    """Return an item with an id. name: the id of one without."""
    named = item if item_id(item) else msgspec.json.encode({**_members(item), "id": name})
    return orjson.Fragment(bytes(named))


def reference(item: msgspec.Raw) -> str | None:
    """Return the id in an item that stands for another one; None for other items."""
    if len(item) > _MOST_REFERENCE:
        return None
    try:
        found = _decode_item(item)
    except _WRONG:
        return None
    named = found.type == "item_reference" or (found.type is None and found.role is None)
    return found.id if named else None


def with_previous(response: bytes, previous: str) -> bytes:
    """Return a response that names the answer which the client has continued: the engine got the
    items instead of the name.
    """
    try:
        members = _members(response)
    except _WRONG:
        return response
    members["previous_response_id"] = msgspec.Raw(orjson.dumps(previous))
    return msgspec.json.encode(members)


def read_events(data: bytes, previous: str) -> tuple[bytes, bytes, bool]:
    """Read whole frames of a stream. previous: the answer that the client has continued, or "".
    Returns the frames with this name, the last response in them or b"", and whether it has ended.
    """
    lines, response, ended = data.split(b"\n"), b"", False
    for number, line in enumerate(lines):
        if not line.startswith(b"data:"):
            continue
        try:
            event = _decode_event(line[5:])
        except _WRONG:
            continue
        response, ended = bytes(event.response), event.type in TERMINAL
        if previous:
            response = with_previous(response, previous)
            members = _members(line[5:])
            members["response"] = msgspec.Raw(response)
            lines[number] = b"data: " + msgspec.json.encode(members)
    return b"\n".join(lines) if previous else data, response, ended
