"""The forms of errors, events, usage and lists in each API, for docs/reference/api-forms.md.

`CELLS` has, for each aspect and API, the form that clients get and what the official client does
with it. A test of each cell runs this client. `{...}` is filled in from the code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from weft_gateway.engine.endpoints import BY_PATH, ErrorShape
from weft_gateway.engine.shapes import TOO_LONG, Fault
from weft_gateway.errors import from_engine

APIS: Final = {
    "chat": "Chat Completions",
    "completions": "Completions",
    "responses": "Responses",
    "websocket": "Responses over a WebSocket",
    "messages": "Messages",
    "batches": "Batches",
    "message_batches": "Message Batches",
}
_PATHS: Final = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "websocket": "/v1/responses",
    "messages": "/v1/messages",
}


class Cell(NamedTuple):
    """form: on the wire. client: what the official client does with it."""

    form: str
    client: str


_ERROR: Final = Cell("`{error}`", "raises `BadRequestError` with these words; `code` is `None`")
_LONG: Final = Cell(
    "the same with `code` `context_length_exceeded` and `param` `{prompt}`",
    "raises `BadRequestError` with `code` `context_length_exceeded`, which agents look for",
)
_BROKEN: Final = Cell(
    "the error body as an event: `data: {{...}}`", "raises `APIError` with the reason"
)
_PROMPT: Final = "`prompt_tokens` with `prompt_tokens_details.cached_tokens`, `completion_tokens`"
_INPUT: Final = "`input_tokens` with `input_tokens_details.cached_tokens`, `output_tokens`"
_SHOWS: Final = "shows the engine's numbers"
_WAITS: Final = "ignores it and waits"

CELLS: Final[dict[str, dict[str, Cell]]] = {
    "error": {
        "chat": _ERROR,
        "completions": _ERROR,
        "responses": _ERROR,
        "websocket": Cell(
            '`{{"type": "error", "status": 400, "error": {{...}}}}`',
            "shows the event; the connection stays open. Codex ends the turn with it",
        ),
        "messages": Cell("`{error}`", "raises `BadRequestError` with the type and `request_id`"),
        "batches": Cell(
            "a line of the error file with the status and the body of the endpoint",
            "downloads the line",
        ),
        "message_batches": Cell(
            "a result `errored` with the body of Messages",
            "shows the result with type, words and `request_id`",
        ),
    },
    "too_long": {
        "chat": _LONG,
        "completions": _LONG,
        "responses": _LONG,
        "websocket": Cell(
            "the event with `code` `context_length_exceeded`",
            "shows the event. Codex says that the context is full, here and over HTTP",
        ),
        "messages": Cell(
            "`{error}`",
            "raises `BadRequestError`. Claude Code reads both numbers",
        ),
        "batches": Cell("as in the endpoint", "downloads the line"),
        "message_batches": Cell("as in Messages", "shows the result"),
    },
    "stream_error": {
        "chat": _BROKEN,
        "completions": _BROKEN,
        "responses": Cell(
            "the events `error` and `response.failed`", "raises `APIError` at the first one"
        ),
        "websocket": Cell(
            "the events `error` and `response.failed`",
            "shows both. Codex repeats the call, then shows the reason",
        ),
        "messages": Cell("`event: error` with the error body", "raises `APIStatusError`"),
    },
    "end": {
        "chat": Cell("`{end}`", "ends the iteration"),
        "completions": Cell("`{end}`", "ends the iteration"),
        "responses": Cell("`{end}`", "shows the event, and ends"),
        "websocket": Cell("the same events as messages", "shows the event"),
        "messages": Cell("`{end}`", "ends, and has the whole message"),
        "batches": Cell("`status` `completed`, `failed`, `expired` or `cancelled`", "shows it"),
        "message_batches": Cell("`processing_status` `ended`", "shows it"),
    },
    "usage": {
        "chat": Cell(_PROMPT, _SHOWS),
        "completions": Cell(_PROMPT, _SHOWS),
        "responses": Cell(_INPUT, _SHOWS),
        "websocket": Cell(_INPUT, _SHOWS),
        "messages": Cell(
            "`input_tokens` without `cache_read_input_tokens` and `cache_creation_input_tokens`, "
            "which are part of the prompt; `output_tokens`",
            f"{_SHOWS}; sessions, limits and metrics count the sum",
        ),
        "batches": Cell(f"of the whole batch: {_INPUT}", "shows the sums"),
        "message_batches": Cell("in each message, as in Messages", _SHOWS),
    },
    "keep_alive": {
        "chat": Cell("`{keep_alive}`", _WAITS),
        "completions": Cell("`{keep_alive}`", _WAITS),
        "responses": Cell(
            "`{keep_alive}`; for Codex an event, because it counts only events", _WAITS
        ),
        "websocket": Cell("a ping of the WebSocket; for Codex an event", _WAITS),
        "messages": Cell("`{keep_alive}`", _WAITS),
    },
    "models": {
        "chat": Cell('`{{"object": "list", "data": [...]}}`', "lists the models"),
        "messages": Cell(
            '`{{"data": [...], "has_more": false, "first_id": ..., "last_id": ...}}` for requests '
            "with `anthropic-version`",
            "lists the models, with the context as `max_input_tokens`",
        ),
    },
}

_TITLES: Final = {
    "error": (
        "An error before the answer",
        "Here the engine refuses the parameter `temperature`. The status is the engine's.",
    ),
    "too_long": (
        "A prompt that is too long",
        "Weft recognises the texts of vLLM, SGLang and llama.cpp.",
    ),
    "stream_error": (
        "An error within a stream",
        "Weft ends the answer with the engine's reason, or with its own: the connection to the "
        "engine broke, for example. Nothing follows. The call counts as an error.",
    ),
    "end": ("The end of an answer", "A stream without this end is an error."),
    "usage": ("Usage", "Of any engine. A chat stream has it if the client asks for it."),
    "keep_alive": (
        "Keep-alives",
        "A client that waits for a stream gets one after `WEFT_HEARTBEAT_S` of silence.",
    ),
    "models": (
        "Lists of models",
        "`GET /v1/models`. The other APIs have the list of their family.",
    ),
}


def sections() -> Iterator[tuple[str, str, list[tuple[str, str, str]]]]:
    """Return for each aspect its title, a text, and a row for each API."""
    for aspect, (title, text) in _TITLES.items():
        rows = [
            (APIS[api], cell.form.format(**_values(aspect, api)), cell.client)
            for api, cell in CELLS[aspect].items()
        ]
        yield title, text, rows


def _values(aspect: str, api: str) -> dict[str, Any]:
    path = _PATHS.get(api)
    if path is None:
        return {}
    endpoint = BY_PATH[path]
    lines = [line.decode().removeprefix("data: ") for line in endpoint.terminals]
    ends = [line for line in lines if "failed" not in line]
    return {
        "error": _body(aspect, endpoint.errors, endpoint.prompt),
        "prompt": endpoint.prompt,
        "end": "` or `".join(ends),
        "keep_alive": endpoint.keep_alive.decode().strip().replace("\n", " "),
    }


def _body(aspect: str, shape: ErrorShape, prompt: str) -> str:
    fault = Fault(400, "temperature must be non-negative, got -3.0.", "", "temperature")
    if aspect == "too_long":
        fault = Fault(400, "", TOO_LONG, None, 5000, 4096)
    body = from_engine(fault, shape, prompt).body(shape, b"req-1")
    return json.dumps(json.loads(body))
