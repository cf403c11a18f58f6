"""Bodies in JSON: one way to read them, and one code for each mistake, on every route."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError

from gateway.api import errors
from gateway.api.errors import ApiError
from gateway.api.http import read_body

# Of routes that run no model: their bodies hold names and little else.
SMALL_BODY_BYTES: Final = 1 << 20

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_Model = TypeVar("_Model", bound=BaseModel)


def json_object(raw: bytes) -> tuple[bytes, dict[str, Any]]:
    """The body, without a byte order mark, and what it holds. ApiError 400."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        if raw.startswith(_BYTE_ORDER_MARK):  # RFC 8259, 8.1: a parser may ignore it.
            return json_object(raw[len(_BYTE_ORDER_MARK) :])
        if "depth" in str(error):
            raise errors.too_deep() from None
        raise ApiError(400, "invalid_json", f"The body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise ApiError(400, "invalid_body", "The body must be a JSON object.")
    return raw, body


def check_depth(value: Any) -> None:
    """ApiError 400 if what was read from JSON is too deep to be written again."""
    try:
        orjson.dumps(value)
    except TypeError:
        raise errors.too_deep() from None


async def read_model(request: Request, model: type[_Model], max_body_bytes: int) -> _Model:
    """A body of at most `max_body_bytes`, and never more than SMALL_BODY_BYTES, as `model`. An
    empty one has no members. ApiError; ClientGone."""
    limit = min(max_body_bytes, SMALL_BODY_BYTES)
    raw = await read_body(dict(request.headers.raw), request.receive, limit)
    try:
        return model.model_validate(json_object(raw)[1] if raw else {})
    except ValidationError as error:
        first = error.errors()[0]
        raise errors.invalid_member(first["loc"], first["msg"]) from None


def described(model: type[BaseModel], *, required: bool) -> dict[str, Any]:
    """The request body in OpenAPI's words, for FastAPI does not see what `read_model` reads."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": required, "content": content}}
