"""Converts the body of Anthropic's `POST /v1/messages/batches` into the lines of an input."""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path
from typing import Final

import msgspec

from weft_gateway import errors
from weft_gateway.errors import ApiError
from weft_gateway.runs.batch_input import MAX_LINES, InputReader
from weft_gateway.runs.batch_lines import id_digest

CUSTOM_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Models of a batch: each call looks at all of them.
MAX_MODELS: Final = 64
_TURN_BYTES: Final = 1 << 18


class _Body(msgspec.Struct):
    requests: list[msgspec.Raw]


class _Params(msgspec.Struct):
    model: str | None = None


class _Request(msgspec.Struct):
    custom_id: str
    params: _Params


_body: Final = msgspec.json.Decoder(_Body).decode
_request: Final = msgspec.json.Decoder(_Request).decode


async def write_lines(source: Path, target: Path, reader: InputReader, tenant: str) -> int:
    """Write each request of the body in `source` as one line of `target`, and return their number.
    The body is mapped, not read: only one request at a time is copied. reader: of the lines. Raises
    ApiError 400.
    """
    size = os.stat(source).st_size
    if not size:
        raise errors.invalid_member(("requests",), "is missing")
    await reader.turns.take(tenant, size)
    with source.open("rb") as file:
        # Not closed here: an error refers to the requests. It ends with the last reference.
        body = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    requests = _requests(memoryview(body))
    seen: set[bytes] = set()
    models: set[str] = set()
    unpaid = 0
    with target.open("wb") as lines:
        for number, raw in enumerate(requests):
            unpaid += len(raw)
            if unpaid >= _TURN_BYTES:
                await reader.turns.take(tenant, unpaid)
                unpaid = 0
            if len(raw) > reader.max_line:
                what = f"must have at most {reader.max_line} bytes"
                raise errors.invalid_member(("requests", number), what)
            line = bytes(raw)
            try:
                request = _request(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise errors.invalid_member(("requests", number), str(error)) from None
            custom_id, model = request.custom_id, request.params.model
            name = ("requests", number, "custom_id")
            if not CUSTOM_ID.fullmatch(custom_id):
                what = "must have 1 to 64 letters, digits, hyphens and underscores"
                raise errors.invalid_member(name, what)
            digest = id_digest(custom_id)
            if digest in seen:
                raise errors.invalid_member(name, f"{custom_id!r} is used by an earlier request")
            seen.add(digest)
            if model and (what := reader.registry.unknown(model)):
                where = f"requests.{number}.params.model"
                message = f"{where}: the model {what}"
                raise ApiError(400, "model_not_found", message, param=where)
            models.update({model} if model else ())
            if len(models) > MAX_MODELS:
                place = ("requests", number, "params", "model")
                raise errors.invalid_member(place, f"a batch names at most {MAX_MODELS} models")
            # Line ends occur only between the tokens of valid JSON.
            lines.write(line.replace(b"\n", b" ") + b"\n")
    return len(requests)


def _requests(body: memoryview) -> list[msgspec.Raw]:
    try:
        requests = _body(body).requests
    except msgspec.ValidationError as error:
        raise errors.invalid_member(("requests",), str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, "invalid_json", f"The body is not valid JSON: {error}") from None
    if not 0 < len(requests) <= MAX_LINES:
        raise errors.invalid_member(("requests",), f"must have 1 to {MAX_LINES} items")
    return requests
