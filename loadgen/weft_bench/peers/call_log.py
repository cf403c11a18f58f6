"""ASGI middleware of vLLM's API server that logs answered calls by answer id, and puts a tool call
into the answers to calls that ask for one: emulated engines request no tools.

vLLM loads it with `--middleware weft_bench.peers.call_log.CallLog`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from weft_bench.peers.turns import CALLS_TOOL

PATH: Final = "/loadgen/calls"
_CALLS: Final = "/v1/chat/completions"
_CALLS_TOOL: Final = CALLS_TOOL.encode()

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class CallLog:
    """Logs plain chat completions. `GET /loadgen/calls` returns the log, `DELETE` empties it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._calls: list[dict[str, Any]] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] not in (PATH, _CALLS):
            await self._app(scope, receive, send)
        elif scope["path"] == PATH:
            await self._serve_log(scope["method"], send)
        else:
            await self._note(scope, receive, send)

    async def _serve_log(self, method: str, send: Send) -> None:
        if method == "DELETE":
            self._calls.clear()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = json.dumps({"calls": self._calls}).encode()
        await send({"type": "http.response.body", "body": body})

    async def _note(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        begun = time.monotonic()
        asked: list[bytes] = []
        parts: list[bytes] = []
        head: list[Message] = []

        async def reading() -> Message:
            message = await receive()
            asked.append(message.get("body", b""))
            return message

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                head.append(message)
                return
            if message["type"] == "http.response.body":
                whole = not parts and not message.get("more_body", False)
                parts.append(message.get("body", b""))
                if not message.get("more_body", False):
                    call = answered(b"".join(parts), time.monotonic() - begun)
                    if call is not None:
                        self._calls.append(call)
                if whole and head and _CALLS_TOOL in b"".join(asked):
                    message = {**message, "body": with_tool_call(message.get("body", b""))}
                    head[0] = _resized(head[0], len(message["body"]))
            while head:
                await send(head.pop())
            await send(message)

        await self._app(scope, reading, noting)


def with_tool_call(body: bytes) -> bytes:
    """Return a plain answer with a call of a tool. Other bodies stay unchanged."""
    try:
        found = json.loads(body)
        (choice,) = found["choices"]
        function = {"name": "recorded", "arguments": "{}"}
        name = f"call-{found['id']}"
        choice["message"]["tool_calls"] = [{"id": name, "type": "function", "function": function}]
        choice["finish_reason"] = "tool_calls"
        return json.dumps(found).encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return body


def _resized(head: Message, size: int) -> Message:
    kept = [(name, value) for name, value in head["headers"] if name.lower() != b"content-length"]
    return {**head, "headers": [*kept, (b"content-length", str(size).encode())]}


def answered(body: bytes, seconds: float) -> dict[str, Any] | None:
    """Return the log record of an answer, or None for errors and streams.

    seconds: time in the API server, with the time in the engine's queue.
    """
    try:
        found = json.loads(body)
        usage = found["usage"]
        details = usage.get("prompt_tokens_details") or {}
        return {
            "id": found["id"],
            "prompt_tokens": usage["prompt_tokens"],
            "cached_tokens": details.get("cached_tokens") or 0,
            "output_tokens": usage["completion_tokens"],
            "used_s": seconds,
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
