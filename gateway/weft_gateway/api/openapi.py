"""The hot routes on the OpenAPI page: they do not pass through FastAPI, so it is told of them."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI

_MESSAGES: Final = [{"role": "user", "content": "What is a warp thread?"}]

# Path: summary, example of a body.
_HOT: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "/v1/chat/completions": (
        "Chat completion",
        {"model": "weft-demo", "messages": _MESSAGES, "max_tokens": 64, "stream": True},
    ),
    "/v1/completions": (
        "Text completion",
        {"model": "weft-demo", "prompt": "Once upon a time", "max_tokens": 64},
    ),
    "/v1/responses": (
        "Response (OpenAI)",
        {"model": "weft-demo", "input": "What is a warp thread?", "max_output_tokens": 64},
    ),
    "/v1/messages": (
        "Message (Anthropic)",
        {"model": "weft-demo", "messages": _MESSAGES, "max_tokens": 64},
    ),
    "/v1/embeddings": (
        "Embeddings",
        {"model": "weft-demo", "input": ["a warp thread", "a weft thread"]},
    ),
}

_PARAMETERS: Final = [
    {
        "name": name,
        "in": "header",
        "required": False,
        "schema": {"type": "string", "maxLength": 256},
        "description": text,
    }
    for name, text in (
        ("x-weft-program", "the program that this call belongs to; see docs for its aliases"),
        ("x-weft-thread", "the thread inside the program"),
        ("x-weft-parent", "the program that started this one"),
        ("x-request-id", "given back; made up where missing"),
    )
]

_ERROR: Final = {
    "description": "An error, in OpenAI's shape (Anthropic's for /v1/messages)",
    "content": {
        "application/json": {
            "example": {
                "error": {
                    "message": "The model `x` does not exist or you do not have access to it.",
                    "type": "invalid_request_error",
                    "param": "model",
                    "code": "model_not_found",
                }
            }
        }
    },
}


def _operation(path: str, summary: str, example: dict[str, Any]) -> dict[str, Any]:
    return {
        "tags": ["calls"],
        "summary": summary,
        "operationId": path.strip("/").replace("/", "_"),
        "description": "Passed to a replica, and its answer passed back, byte for byte but for "
        "what Weft adds. Also under /p/{program}, which names the call's program.",
        "parameters": _PARAMETERS,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object"}, "example": example}},
        },
        "responses": {
            "200": {
                "description": "The engine's answer; server-sent events where `stream` is true",
                "headers": {
                    name: {"schema": {"type": "string"}}
                    for name in ("x-weft-program", "x-weft-replica", "x-request-id")
                },
                "content": {"application/json": {}, "text/event-stream": {}},
            },
            "4XX": _ERROR,
            "5XX": _ERROR,
        },
    }


def describe_hot_routes(app: FastAPI) -> None:
    """Add the hot routes to the page that `app` serves at /openapi.json and /docs."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            hot = {path: {"post": _operation(path, *about)} for path, about in _HOT.items()}
            schema["paths"] = hot | schema["paths"]
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
