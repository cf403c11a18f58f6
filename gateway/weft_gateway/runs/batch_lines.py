"""The lines of a batch's input: their members, their errors, and the keys that order them. Pure.

OpenAI's line is `{"custom_id", "method", "url", "body"}`, Anthropic's request is `{"custom_id",
"params"}`. Both are stored as one line of JSON each.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec
import orjson

from weft_gateway.engine.prefixes import prompt_bytes
from weft_gateway.runs.records import Api, LineError

MAX_CUSTOM_ID: Final = 512
# About 64 tokens: a few blocks of a prefix cache. A key has 4 bytes for each.
_STEP_BYTES: Final = 256
_MOST_STEPS: Final = 256
_SHOWN: Final = 64
_EMBEDDINGS: Final = "/v1/embeddings"
_RESPONSES: Final = "/v1/responses"


class Line(NamedTuple):
    """A request. body: its bytes. read: its parsed members."""

    custom_id: str
    body: bytes
    read: dict[str, Any]


class WrongLine(Exception):
    """A line that fails the batch."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param

    def at(self, line: int) -> LineError:
        """Return the error of a line, counted from 1."""
        return LineError(self.code, str(self), line, self.param)


_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_body_of: Final = {Api.OPENAI: "body", Api.ANTHROPIC: "params"}


def read_line(raw: bytes, api: Api, endpoint: str) -> Line:
    """Parse one line of a batch for `endpoint`. Raises WrongLine."""
    try:
        members = _members(raw)
        values: dict[str, Any] = {
            name: orjson.loads(bytes(members[name]))
            for name in ("custom_id", "method", "url")
            if name in members
        }
        name = _body_of[api]
        body = bytes(members[name]) if name in members else b""
        read = orjson.loads(body) if body else None
    except msgspec.ValidationError:
        raise WrongLine("invalid_json_line", "This line is not a JSON object.") from None
    except (msgspec.DecodeError, orjson.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise WrongLine("invalid_json_line", "This line is not parseable as valid JSON.") from None
    custom_id = _text(values, "custom_id")
    if not custom_id or len(custom_id) > MAX_CUSTOM_ID:
        what = f"'custom_id' must have 1 to {MAX_CUSTOM_ID} characters."
        raise WrongLine("invalid_custom_id", what, "custom_id")
    if api is Api.OPENAI:
        method, url = _text(values, "method"), _text(values, "url")
        if method != "POST":
            what = f"Invalid method {method[:_SHOWN]!r}: only 'POST' is supported."
            raise WrongLine("invalid_method", what, "method")
        if url != endpoint:
            what = f"The URL {url[:_SHOWN]!r} differs from the batch's endpoint {endpoint!r}."
            raise WrongLine("invalid_url", what, "url")
    if read is None:
        raise _missing(name)
    if not isinstance(read, dict):
        raise WrongLine("invalid_type", f"'{name}' must be an object.", name)
    model = read.get("model")
    if model is not None and not isinstance(model, str):
        raise WrongLine("invalid_type", f"'{name}.model' must be a string.", f"{name}.model")
    return Line(custom_id, body, read)


def _text(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        raise _missing(name)
    value = values[name]
    if not isinstance(value, str):
        raise WrongLine("invalid_type", f"'{name}' must be a string.", name)
    return value


def _missing(name: str) -> WrongLine:
    what = f"Missing required parameter: '{name}'."
    return WrongLine("missing_required_parameter", what, name)


def refusal(read: Mapping[str, Any]) -> str:
    """Return why a request cannot be part of a batch, "" if it can."""
    if read.get("stream"):
        return "Requests of a batch cannot be streamed: remove 'stream'."
    if read.get("background"):
        return "Requests of a batch cannot run in the background: remove 'background'."
    return ""


def order_key(read: Mapping[str, Any]) -> bytes:
    """Return a key by which requests with a common beginning of their prompts are neighbours: the
    order of a radix tree over blocks of the prompt.
    """
    try:
        data = prompt_bytes(read)
    except TypeError:
        return b""
    end = min(len(data), _STEP_BYTES * _MOST_STEPS)
    steps = [crc32(data[at : at + _STEP_BYTES]) for at in range(0, end, _STEP_BYTES)]
    return b"".join([step.to_bytes(4, "big") for step in steps])


def same_answer_key(read: Mapping[str, Any], endpoint: str) -> bytes:
    """Return a digest that requests share if one answer serves all of them, b"" if a
    request must be sent by itself. Greedy requests and embeddings are deterministic, sampled ones
    are not. Stored responses have ids that clients use, so they are never shared.
    """
    if endpoint == _RESPONSES and read.get("store") is not False:
        return b""
    if endpoint != _EMBEDDINGS and not _is_greedy(read):
        return b""
    try:
        # Models see the order inside of values, such as that of a JSON schema.
        text = orjson.dumps(dict(sorted(read.items())))
    except TypeError:
        return b""
    return blake2b(text, digest_size=16).digest()


def _is_greedy(read: Mapping[str, Any]) -> bool:
    temperature = read.get("temperature")
    if isinstance(temperature, bool) or temperature not in (0, 0.0):
        return False
    return all(read.get(name) in (None, 1) for name in ("n", "best_of"))


def id_digest(custom_id: str) -> bytes:
    """Return a digest of a custom id, short enough to hold one for each line."""
    return blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=12).digest()
