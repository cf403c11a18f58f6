"""Errors and usage of engines, read into one form for all engines and APIs. Pure.

`weft_gateway.errors` writes an error in the form of the client's API.
"""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from typing import Any, Final, NamedTuple

import orjson

from weft_gateway.model.usage import Usage

# OpenAI's code for a prompt that exceeds the context of the model. Agents shorten their history
# after it.
TOO_LONG: Final = "context_length_exceeded"
_MODEL: Final = "model_not_found"
# Larger error bodies are not parsed.
_MOST_BYTES: Final = 1 << 20
_MOST_TEXT: Final = 8192
_MOST_NAME: Final = 256

# Types and codes of errors within streams, where no HTTP status says what they are.
_STATUSES: Final = {
    "invalid_request_error": 400, "invalid_prompt": 400, "BadRequestError": 400, TOO_LONG: 400,
    "authentication_error": 401, "permission_error": 403, "not_found_error": 404,
    "NotFoundError": 404, "request_too_large": 413, "rate_limit_error": 429,
    "rate_limit_exceeded": 429, "overloaded_error": 503, "ServiceUnavailableError": 503,
    "timeout_error": 504,
}  # fmt: skip
# vLLM adds the parameter to some texts, and the value, which may be the client's.
_PARAMETER: Final = re.compile(r" ?\(parameter=(\w+)(?:, value=.*)?\)$", re.DOTALL)
# vLLM shows errors of validation as Python's text of one dict each.
_TEXT: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_INVALID: Final = re.compile(rf"'loc': ({_TEXT}), 'msg': ({_TEXT})")
_INTERNAL: Final = re.compile(r"\d+ validation errors? for \w+\n")
# The texts of vLLM since 0.6, SGLang and llama.cpp.
_LONG: Final = re.compile(
    r"maximum context length|longer than the (?:maximum model|model's context) length"
    r"|exceeds? the (?:available context size|context window)",
    re.IGNORECASE,
)
_LIMIT: Final = re.compile(
    r"(?:context|model) (?:length|size|window)(?: is| of)?[ (]{1,2}(\d{1,12})(?!\d)", re.IGNORECASE
)
_LENGTH: Final = re.compile(
    r"(?:contains|requested|total of|input|prompt|length)[ (]{1,2}(?:at least |length )?(\d{1,12})"
    r"(?!\d| characters)",
    re.IGNORECASE,
)


class Fault(NamedTuple):
    """An engine's error. message: in words. code: OpenAI's, "" if it has none. param: of the
    request. length, limit: tokens of a prompt that is too long, and of the model's context; 0 if
    unknown.
    """

    status: int
    message: str
    code: str = ""
    param: str | None = None
    length: int = 0
    limit: int = 0


def fault_of(body: bytes, status: int = 0) -> Fault:
    """Return the error in an error body, or in the data of an event. status: 0 if the error must
    say it.
    """
    read: Any = None
    with suppress(orjson.JSONDecodeError):
        read = orjson.loads(body) if len(body) <= _MOST_BYTES else None
    if not isinstance(read, dict):
        # Proxies answer with pages, and servers with text.
        text = "" if body.lstrip().startswith(b"<") else body[:_MOST_TEXT].decode("utf-8", "ignore")
        read = {"message": text.strip()}
    response, detail = read.get("response"), read.get("detail")
    # `response.failed` has its error in the response.
    inner = (response if isinstance(response, dict) else read).get("error", detail)
    if isinstance(inner, list) and inner and isinstance(inner[0], dict):
        # An error of FastAPI's validation. The first element of `loc` is the part of the request.
        path = inner[0].get("loc")
        param = ".".join(map(str, path[1:])) if isinstance(path, list) else None
        read = {"message": inner[0].get("msg"), "param": param}
    elif isinstance(inner, dict):
        read = inner
    elif isinstance(inner, str):
        read = {"message": inner}
    message, param = _words(read.get("message"))
    if isinstance(read.get("param"), str):
        param = read["param"].removeprefix("body.")
    param = param and param[:_MOST_NAME]
    code = read.get("code")
    status = status or _status(code, read.get("type"))
    message = message[:_MOST_TEXT] or f"The replica gave no reason for its error (status {status})."
    code = code[:_MOST_NAME] if isinstance(code, str) and not code.isdigit() else ""
    if status < 500 and (code == TOO_LONG or _LONG.search(message)):
        return Fault(status, message, TOO_LONG, param, *_sizes(message))
    if status == 404 and not code and "model" in message and "does not exist" in message:
        code, param = _MODEL, "model"
    return Fault(status, message, code, param)


def _status(code: Any, kind: Any) -> int:
    for value in (code, kind):
        if isinstance(value, int) and 400 <= value < 600:
            return value
        if isinstance(value, str) and value in _STATUSES:
            return _STATUSES[value]
    return 500


def _words(text: Any) -> tuple[str, str | None]:
    """Return an engine's text without its Python, and the parameter that it names."""
    if not isinstance(text, str) or _INTERNAL.match(text):
        return "", None
    if "validation error" in text[:64]:
        found = [(_literal(where), _literal(what)) for where, what in _INVALID.findall(text)]
        lines = [what if where in what else f"{where}: {what}" for where, what in found]
        return ("; ".join(lines), found[0][0]) if found else (text, None)
    # In a text with another end, the search would read the rest of the text from each beginning.
    named = _PARAMETER.search(text) if text.endswith(")") else None
    return (text[: named.start()], named[1]) if named else (text, None)


def _literal(text: str) -> str:
    try:
        read = str(ast.literal_eval(text)).encode("utf-8", "replace").decode()
    except (ValueError, SyntaxError):
        return text[1:-1]
    return read.removeprefix("body.").removeprefix("Value error, ")


def _sizes(message: str) -> tuple[int, int]:
    length, limit = _LENGTH.search(message), _LIMIT.search(message)
    return int(length[1]) if length else 0, int(limit[1]) if limit else 0


# The names of chats and completions, and those of responses and messages.
_OF_CHATS: Final = (
    "prompt_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details",
)  # fmt: skip
_OF_MESSAGES: Final = (
    "input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details",
)  # fmt: skip


def usage_of(usage: object) -> Usage | None:
    """Return the tokens of a `usage` object of any API, None if it has no prompt. Values that are
    no counts are 0.
    """
    if not isinstance(usage, dict):
        return None
    names = _OF_CHATS if "prompt_tokens" in usage else _OF_MESSAGES
    prompt, output = _count(usage, names[0]), _count(usage, names[1])
    cached = reasoning = 0
    if details := usage.get(names[2]):
        cached = _count(details, "cached_tokens")
    if details := usage.get(names[3]):
        reasoning = _count(details, "reasoning_tokens")
    if names is _OF_MESSAGES:
        # Only Messages count the tokens of the cache beside those of the input.
        read = _count(usage, "cache_read_input_tokens")
        prompt += read + _count(usage, "cache_creation_input_tokens")
        cached += read
    return Usage(prompt, cached, output, reasoning) if prompt else None


# An object with objects of plain values in it.
_USAGE: Final = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')


def last_usage(text: bytes) -> Usage | None:
    """Return the last usage in the bytes of an answer, plain or streamed; None without one. A text
    of the model cannot contain it, because its quotes are escaped.
    """
    at = text.rfind(b'"usage"')
    while at >= 0:
        found = _USAGE.match(text, at)
        if found:
            try:
                return usage_of(orjson.loads(found[1]))
            except orjson.JSONDecodeError:
                return None
        at = text.rfind(b'"usage"', 0, at)
    return None


def _count(values: object, name: str) -> int:
    value = values.get(name) if isinstance(values, dict) else None
    # `bool` is an `int`. Sums must fit into 64 bits.
    return value if type(value) is int and 0 <= value < 1 << 40 else 0
