"""ASGI middleware of the API server that adds a call's report to its response.

Only calls with an `x-weft-call` header are changed. A plain response gets the header
`x-weft-report`; a streamed one gets an SSE comment before its last frame. Both wait briefly for the
report, which the scheduler sends before the last token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from weft_engine.report_server import ReportServer
from weft_engine.wire import CALL_HEADER, REPORT_COMMENT, REPORT_HEADER

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

REPORTED_PATHS: Final = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"}
)
# Prefixes of the last frames of the four stream formats.
_LAST_FRAMES: Final = (
    b"data: [DONE]",
    b"event: message_stop",
    b"event: response.completed",
    b"event: response.incomplete",
    b"event: response.failed",
)
_WAIT_S: Final = 0.5
_CALL: Final = CALL_HEADER.encode()


class ReportMiddleware:
    """ASGI middleware: `--middleware weft_engine.middleware.ReportMiddleware`."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["path"] not in REPORTED_PATHS:
            await self.app(scope, receive, send)
            return
        call = next((v.decode("latin-1") for k, v in scope["headers"] if k == _CALL), "")
        reports = getattr(scope["app"].state, "weft_hub", None) if "app" in scope else None
        if not call or reports is None:
            await self.app(scope, receive, send)
            return
        await self.app(scope, receive, _Reporter(send, reports, call))


class _Reporter:
    """A `send` that inserts the report."""

    def __init__(self, send: Send, reports: ReportServer, call: str) -> None:
        self._send = send
        self._hub = reports
        self._call = call
        self._streaming = False
        self._done = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._start(message)
        elif self._streaming and not self._done and _is_last(message):
            self._done = True
            report = await self._hub.report(self._call, _WAIT_S)
            if report is not None:
                frame = REPORT_COMMENT + report.to_json().encode() + b"\n\n"
                await self._send({"type": "http.response.body", "body": frame, "more_body": True})
        await self._send(message)

    async def _start(self, message: Message) -> None:
        if message["status"] != 200:
            self._done = True
            return
        headers = list(message.get("headers", ()))
        self._streaming = any(
            k.lower() == b"content-type" and v.startswith(b"text/event-stream") for k, v in headers
        )
        if self._streaming:
            return
        self._done = True
        report = await self._hub.report(self._call, _WAIT_S)
        if report is not None:
            headers.append((REPORT_HEADER.encode(), report.to_json().encode()))
            message["headers"] = headers


def _is_last(message: Message) -> bool:
    body = message.get("body", b"")
    return not message.get("more_body", False) or any(mark in body for mark in _LAST_FRAMES)
