"""Parses JSON bodies. All routes use the same parser and the same error codes.

A call's body can be large, and built so that parsing takes seconds: millions of tiny messages. Such
a body is skimmed: its small members are parsed, and its content is forwarded unchanged. An
`orjson.Fragment` replaces the content, which no reader treats as a list or a string.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError
from weft_run import yaml_errors

from weft_gateway import errors
from weft_gateway.api.http import read_body
from weft_gateway.calls.turns import LIGHT_BYTES, Turns
from weft_gateway.engine import media
from weft_gateway.errors import ApiError
from weft_gateway.programs.transcripts import Transcripts
from weft_gateway.transcripts.reading import Reading, read, read_fresh, without
from weft_gateway.transcripts.size import signs, size_of

# Limit for routes that run no model: their bodies contain little more than names and take no turns.
SMALL_BODY_BYTES: Final = 1 << 16

# Smaller bodies are parsed without a check of their structure.
_PLAIN_BYTES: Final = 1 << 18
# Maximum number of braces, brackets and commas of a parsed body: about 0.1 us each.
_MOST_UNITS: Final = 100_000
# Maximum number of characters in the messages of a body with parsed content.
_MOST_TEXT: Final = 12 << 20
# Limits of a skimmed body: bytes outside the content, and the longest parsed member.
_MOST_BESIDE: Final = 1 << 20
_MOST_MEMBER: Final = 1 << 16
# Maximum number of members of an object whose members are copied one by one.
_MOST_MEMBERS: Final = 1024
# Bytes that are searched in one turn.
_SEARCHED: Final = 1 << 18
_CONTENT: Final = (
    "messages", "input", "prompt", "system", "instructions", "tools", "functions", "documents",
)  # fmt: skip
# A parser may ignore it (RFC 8259, 8.1).
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# Replaces content that is not parsed.
_UNREAD: Final = orjson.Fragment(b"null")
_Model = TypeVar("_Model", bound=BaseModel)


def json_object(raw: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return the body without a byte order mark, and its parsed members. Raises ApiError 400."""
    raw = raw.removeprefix(_BYTE_ORDER_MARK)
    body = json_value(raw)
    if not isinstance(body, dict):
        raise ApiError(400, "invalid_body", "The body must be a JSON object.")
    return raw, body


def light_body(raw: bytes) -> tuple[bytes, dict[str, Any]]:
    """Same as `call_body` for a body that is parsed in one piece. Longer ones need a turn first."""
    raw = raw.removeprefix(_BYTE_ORDER_MARK)
    _members(raw)
    return json_object(raw)


async def check_media_names(raw: bytes, turns: Turns, tenant: str) -> None:
    """Raise ApiError 400 if a body that is not parsed may name media. A long one takes several
    turns."""
    for start in range(0, len(raw), _SEARCHED):
        await turns.take(tenant, _SEARCHED)
        if media.seems_to_name(raw[start : start + _SEARCHED + media.OVERLAP]):
            raise errors.of("media_name")


async def text_bytes(raw: bytes, turns: Turns, tenant: str) -> int:
    """Same as `media.text_bytes`, in turns."""
    size = len(raw)
    for begin, end in media.embedded(raw):
        if end:
            size -= end - begin - media.COUNTED_BYTES
        else:
            await turns.take(tenant, _SEARCHED)
    return size


class Body(NamedTuple):
    """A call's body. members: parsed. reading: where the messages of a long one are, None for a
    short or skimmed one.
    """

    raw: bytes
    members: dict[str, Any]
    reading: Reading | None = None


async def call_body(
    raw: bytes,
    most_bytes: int,
    most_items: int,
    turns: Turns,
    tenant: str,
    transcripts: Transcripts | None = None,
) -> Body:
    """Same as `json_object` for a call: messages that `transcripts` knows are not parsed, nor is
    content that is larger than `most_bytes` or has too many pieces. most_items: maximum number of
    messages and message parts; later work takes 4 to 8 us for each. Raises ApiError 400.
    """
    size = len(raw)
    if size <= LIGHT_BYTES:
        return Body(*light_body(raw))
    await turns.take(tenant, size)
    raw = raw.removeprefix(_BYTE_ORDER_MARK)
    digests: Sequence[int] = ()
    if transcripts is not None:
        digests, known = transcripts.find(tenant, raw)
        if known is not None:
            # The errors of a whole body are more precise.
            with suppress(ApiError):
                fresh = without(known)
                members, body = _parsed(fresh, most_bytes, most_items)
                if body is not None:
                    return Body(raw, body, read_fresh(known, fresh, body, members, digests))
    members, body = _parsed(raw, most_bytes, most_items)
    if body is not None:
        return Body(raw, body, read(raw, body, members, digests) if digests else None)
    _check_beside(raw, members)
    return Body(raw, _skimmed(members))


def _parsed(
    raw: bytes, most_bytes: int, most_items: int
) -> tuple[dict[str, msgspec.Raw], dict[str, Any] | None]:
    """Return the unparsed members of a body, and the parsed ones; None if its content is too much.
    Raises ApiError 400.
    """
    members, size = _members(raw), len(raw)
    if size <= most_bytes and (size <= _PLAIN_BYTES or _units(raw) <= _MOST_UNITS):
        _, body = json_object(raw)
        if _is_moderate(body, most_items):
            return members, body
    return members, None


def raw_members(raw: bytes) -> dict[str, msgspec.Raw]:
    """Return the unparsed members of a JSON object. Raises ApiError 400."""
    raw = raw.removeprefix(_BYTE_ORDER_MARK)
    members = _members(raw)
    if len(raw) > _PLAIN_BYTES and _units(raw) > _MOST_UNITS:
        _check_beside(raw, members)
    return members


class _Name(str):
    """The name of a member, as a key that equals no other key: a dictionary then holds all members
    of an object, including those with the same name.
    """

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class _Namer:
    """Creates the names of one object, at most _MOST_MEMBERS of them."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, kind: type[_Name], text: str) -> _Name:
        self.made += 1
        if self.made > _MOST_MEMBERS:
            raise ValueError
        return kind(text)


_namer: Final = _Namer()
_each_member: Final = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=_namer)


def _members(raw: bytes) -> dict[str, msgspec.Raw]:
    """Return the unparsed members of a JSON object. Raises ApiError 400, also for duplicate names:
    some parsers take the first member and others the last, so an engine could receive a different
    request than the one checked here. Takes about 0.3 ms per megabyte and 1 us per 6 members.
    """
    _namer.made = 0
    try:
        found = _each_member.decode(raw)
    except RecursionError:
        raise errors.of("too_deeply_nested") from None
    except msgspec.ValidationError:
        if _namer.made > _MOST_MEMBERS:
            text = f"The body has more than {_MOST_MEMBERS} members."
            raise ApiError(400, "too_complex", text) from None
        raise ApiError(400, "invalid_body", "The body must be a JSON object.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, "invalid_json", f"The body is not valid JSON: {error}") from None
    members = {str(name): piece for name, piece in found.items()}
    if len(members) < len(found):
        names = [str(name) for name in found]
        twice = next(name for name in names if names.count(name) > 1)[:256]
        raise ApiError(
            400, "duplicate_member", f"The body has the member {twice!r} twice.", param=twice
        )
    return members


def is_skimmed(body: Mapping[str, Any]) -> bool:
    """Whether the body's content has not been parsed."""
    return any(type(body.get(name)) is orjson.Fragment for name in _CONTENT)


def _units(raw: bytes) -> int:
    """Return the number of braces, brackets and commas. If they are many, those inside of texts do
    not count, unless there are as many texts.
    """
    found = signs(raw)
    if found <= _MOST_UNITS or found > 4 * _MOST_UNITS:
        return found
    pieces = raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"', 2 * _MOST_UNITS)
    return signs(b"".join(pieces[::2])) if len(pieces) <= 2 * _MOST_UNITS else found


def _is_moderate(body: Mapping[str, Any], most_items: int) -> bool:
    """Whether the content is short enough to be inspected."""
    items = text = 0
    for name in _CONTENT:
        value = body.get(name)
        if type(value) is str:
            text += len(value)
        elif type(value) is list and name not in ("tools", "functions"):
            items += len(value)
            if items > most_items:
                return False
            for item in value:
                more, longer = size_of(item, most_items)
                items += more
                text += longer
            if items > most_items:
                return False
    return text <= _MOST_TEXT


def _check_beside(raw: bytes, members: Mapping[str, msgspec.Raw]) -> None:
    """Raise ApiError 400 for a large body with too many bytes outside its content."""
    beside = len(raw) - sum([len(members[name]) for name in _CONTENT if name in members])
    if beside > _MOST_BESIDE:
        raise ApiError(
            400,
            "too_complex",
            f"Outside {', '.join(_CONTENT)}, a large body may have {_MOST_BESIDE} bytes.",
        )


def _skimmed(members: dict[str, msgspec.Raw]) -> dict[str, Any]:
    """Return the body without its content. Raises ApiError 400."""
    body: dict[str, Any] = {}
    for name, piece in members.items():
        if name in _CONTENT or len(piece) > _MOST_MEMBER:
            body[name] = _UNREAD
        else:
            body[name] = json_value(bytes(piece))
    return body


def json_value(raw: bytes) -> Any:
    """Parse JSON text. Raises ApiError 400."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        if "depth" in str(error):
            raise errors.of("too_deeply_nested") from None
        raise ApiError(400, "invalid_json", f"The body is not valid JSON: {error}") from None


def check_depth(value: Any) -> None:
    """Raise ApiError 400 if a value parsed from JSON is too deep to be encoded again."""
    try:
        orjson.dumps(value)
    except TypeError:
        raise errors.of("too_deeply_nested") from None


async def read_model(request: Request, model: type[_Model], max_body_bytes: int) -> _Model:
    """Parse a body of at most `max_body_bytes` and SMALL_BODY_BYTES as `model`. An empty body has
    no members. Raises ApiError and ClientGone.

    FastAPI's body parameters accept bodies of any size, and before authentication.
    """
    limit = min(max_body_bytes, SMALL_BODY_BYTES)
    raw = await read_body(dict(request.headers.raw), request.receive, limit)
    try:
        return model.model_validate(json_object(raw)[1] if raw else {})
    except ValidationError as error:
        first = error.errors()[0]
        what, path = yaml_errors.reason(first, "an object"), first["loc"]
        if first["type"] == "extra_forbidden" and len(path) == 1:
            what += yaml_errors.nearest(str(path[0]), model.model_fields)
        raise errors.invalid_member(path, what) from None


def described(model: type[BaseModel], *, required: bool) -> dict[str, Any]:
    """Return the description of a body that `read_model` parses, for a route's `openapi_extra`."""
    schema = model.model_json_schema()
    schema = _inlined(schema, schema.pop("$defs", {}))
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": required, "content": content}}


def _inlined(value: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema with its definitions in place: OpenAPI resolves references elsewhere."""
    if isinstance(value, list):
        return [_inlined(each, definitions) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        value = definitions[value["$ref"].rpartition("/")[2]]
    return {name: _inlined(each, definitions) for name, each in value.items()}
