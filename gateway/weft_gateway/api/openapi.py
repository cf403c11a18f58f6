"""The OpenAPI document: the routes that bypass FastAPI, the errors, and an example for each route.

`examples.json` has the examples by operation id. They were recorded from a gateway in front of an
engine without a model; ids, times and generated text are edited. Embeddings, tokenization and
stored responses follow vLLM 0.32 instead.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Any, Final, Literal, NamedTuple

import orjson
from fastapi import FastAPI
from pydantic import BaseModel, Field

from weft_gateway import errors

# For `FastAPI(responses=...)`: every operation refers to the one description of errors.
ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"$ref": "#/components/responses/Error"} for status in ("4XX", "5XX")
}
_DESCRIPTION: Final = (
    "A stateful serving gateway for agent programs, compatible with the APIs of OpenAI and "
    "Anthropic.\n\nEvery path under `/v1` is also served under `/p/{program}/v1`. The prefix names "
    "the program of a call and is percent-encoded. The API key "
    "is in `authorization: Bearer KEY` or in `x-api-key`, and selects the tenant."
)
_HEADERS: Final = {
    "x-weft-program": "the program of the call; the page Programs lists the other names",
    "x-weft-thread": "the thread within the program",
    "x-weft-parent": "the thread that started this one, within the program",
    "x-weft-budget": "budget of a program that has none: a JSON object as in `PATCH "
    "/v1/sessions/{session_id}`",
    "x-request-id": "returned in the answer, and the key of the receipt; generated if missing",
}
_STRING: Final = {"type": "string", "maxLength": 256}
_CALL: Final = (
    "Weft adds its own fields to the body, sends it to a replica, and returns the engine's answer. "
    "The bytes of an answer are unchanged; errors get the form of the API."
)
_STREAM: Final = f"{_CALL} With `stream: true` the answer is server-sent events."
_STORED: Final = (
    "The gateway has stored it, unless the call said `store: false`. 404 for another tenant's."
)
_BACKGROUND: Final = f"{_STORED} A background response that has not ended is its replica's."
_WEBSOCKET: Final = (
    "\n\nThe same path with `GET` and an upgrade opens a WebSocket. Each message "
    '`{"type": "response.create", ...}` with the members of this body starts one response, and '
    "each event of the streamed answer is one JSON message. The gateway serves one response at a "
    "time per connection. An error is a message "
    '`{"type": "error", "status": 400, "error": {...}}` and leaves the connection open.'
)


class ErrorDetail(BaseModel):
    """Describes the error of a request."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None = Field(description="the wrong member or parameter")
    code: str = Field(description="the kind of error, for programs")


class Error(BaseModel):
    """An error in OpenAI's shape."""

    error: ErrorDetail


class _Route(NamedTuple):
    """A route that bypasses FastAPI. call: it runs the model."""

    operation_id: str
    method: str
    path: str
    summary: str
    description: str
    call: bool = False


_ROUTES: Final = (
    _Route(
        "create_chat_completion", "post", "/v1/chat/completions", "Chat completion", _STREAM, True
    ),
    _Route("create_completion", "post", "/v1/completions", "Text completion", _STREAM, True),
    _Route(
        "create_response", "post", "/v1/responses", "Response (OpenAI)", _STREAM + _WEBSOCKET, True
    ),
    _Route("create_message", "post", "/v1/messages", "Message (Anthropic)", _STREAM, True),
    _Route("create_embedding", "post", "/v1/embeddings", "Embeddings", _CALL, True),
    _Route(
        "extend_prefill",
        "post",
        "/v1/hints/prefill/{prefill_id}/extend",
        "extend_prefill: chat completion that begins with a prefill's messages",
        f"{_STREAM} The call claims the prefill and must begin with its messages.",
        True,
    ),
    _Route(
        "count_message_tokens",
        "post",
        "/v1/messages/count_tokens",
        "Count the tokens of a message (Anthropic)",
        "Any replica answers. The model does not run.",
    ),
    _Route("tokenize", "post", "/tokenize", "Tokenize a prompt", "Any replica answers."),
    _Route("detokenize", "post", "/detokenize", "Turn tokens into text", "Any replica answers."),
    _Route(
        "get_response", "get", "/v1/responses/{response_id}", "Get a stored response", _BACKGROUND
    ),
    _Route(
        "delete_response",
        "delete",
        "/v1/responses/{response_id}",
        "Delete a stored response",
        _STORED,
    ),
    _Route(
        "cancel_response",
        "post",
        "/v1/responses/{response_id}/cancel",
        "Cancel a background response",
        _BACKGROUND,
    ),
    _Route(
        "list_input_items",
        "get",
        "/v1/responses/{response_id}/input_items",
        "List the input of a stored response",
        f"{_STORED} With the items before it, if it continues another one.",
    ),
)


def _operation(route: _Route) -> dict[str, Any]:
    headers = _HEADERS if route.call else {}
    given = [
        {"name": name, "in": "header", "required": False, "schema": _STRING, "description": about}
        for name, about in headers.items()
    ]
    given += [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    names = ["x-weft-replica", *(("x-weft-program", "x-request-id") if route.call else ())]
    return {
        "tags": ["calls" if route.call else "pass-through"],
        "summary": route.summary,
        "description": route.description,
        "operationId": route.operation_id,
        "parameters": given,
        "responses": {
            "200": {
                "description": "The engine's answer",
                "headers": {name: {"schema": {"type": "string"}} for name in names},
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            **ERRORS,
        },
    }


def _illustrate(operation: dict[str, Any], example: dict[str, Any]) -> None:
    """Add the examples of one operation."""
    if "request" in example:
        body = operation.setdefault("requestBody", {"required": True})
        content = body.setdefault("content", {}).setdefault("application/json", {})
        content.setdefault("schema", {"type": "object"})
        content["example"] = example["request"]
    if "yaml" in example:
        operation["requestBody"]["content"]["application/yaml"]["example"] = example["yaml"]
    if "form" in example:
        operation["requestBody"]["content"]["multipart/form-data"]["example"] = example["form"]
    success = next(iter(operation["responses"].values()))
    if "stream" in example:
        success["content"]["text/event-stream"] = {"example": example["stream"]}
    for kind, content in success["content"].items():
        if kind == "application/json":
            content["example"] = example["response"]
        elif "text" in example:
            content["example"] = example["text"]


def _error_response() -> tuple[dict[str, Any], dict[str, Any]]:
    """The one description of errors, and the schemas that it refers to."""
    error = errors.model_not_found("x")
    bodies = {"openai": error.body("openai"), "anthropic": error.body("anthropic")}
    schema = Error.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = schema.pop("$defs") | {"Error": schema}
    response = {
        "description": "An error in OpenAI's form; in Anthropic's for `/v1/messages`, and on "
        "paths that both APIs have for requests with `anthropic-version`. `code` names its kind. "
        "400: an invalid body, parameter or id. 401: an unknown API key. 404: not found. 413: a "
        "body that is too large. 429: a limit of the tenant. 503: no replica or no process table. "
        "`retry-after` gives the seconds to wait.",
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/Error"},
                "examples": {name: {"value": orjson.loads(raw)} for name, raw in bodies.items()},
            }
        },
    }
    return response, schemas


def complete_document(app: FastAPI) -> None:
    """Complete the document that `app` serves at /openapi.json and shows at /docs."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            schema["info"]["description"] = _DESCRIPTION
            components = schema.setdefault("components", {})
            response, schemas = _error_response()
            components["responses"] = {"Error": response}
            components.setdefault("schemas", {}).update(schemas)
            served, schema["paths"] = schema["paths"], {}
            for route in _ROUTES:
                schema["paths"].setdefault(route.path, {})[route.method] = _operation(route)
            schema["paths"] |= served
            file = resources.files(__package__).joinpath("examples.json")
            examples = orjson.loads(file.read_bytes())
            for methods in schema["paths"].values():
                for operation in methods.values():
                    _illustrate(operation, examples[operation["operationId"]])
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
