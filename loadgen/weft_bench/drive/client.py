"""The HTTP client of all benches: keep-alive connections with little overhead.

The client shares its cores with the measured programs. A call through httpx takes about ten times
as much processor time (docs/internals/decisions/0001-upstream-client.md), more than the gateway
itself.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httptools

# Receives the name ("" for none) and the data of a server-sent event.
OnEvent = Callable[[str, bytes], None]
_NO_HEADERS: Final[Mapping[str, str]] = {}


class Refused(ValueError):
    """The answer has another status than expected, or is no JSON. The message contains it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer.

    headers: by lower-case name. body: empty for a stream whose events were received. sent_s,
    ended_s: monotonic seconds.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent_s: float = 0.0
    ended_s: float = 0.0

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    def json(self, status: int = 200) -> Any:
        """Return the body. Raises Refused for another status or another body."""
        try:
            if self.status == status:
                return json.loads(self.body)
        except ValueError:
            pass
        raise Refused(f"{self.status}: {self.text[:300]}")


class Connection(asyncio.Protocol):
    """One keep-alive connection. `ask` sends a request and waits for the whole answer."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.close()
            if self._answer is not None and not self._answer.done():
                # The context is the exception of a callback.
                self._answer.set_exception(error.__context__ or ConnectionError(str(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(0)

    def on_message_complete(self) -> None:
        """httptools: the answer is complete."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(self._parser.get_status_code())

    @property
    def usable(self) -> bool:
        """Return whether another request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes) -> int:
        """Return the answer's status, 0 if the connection was lost."""
        if self._transport is None:
            return 0
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


class _Line(Connection):
    """A connection that keeps headers and body, or passes the events of a stream on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = False
        self.headers: dict[str, str] = {}
        self.parts: list[bytes] = []
        self.on_event: OnEvent | None = None
        self._rest = b""

    def on_message_begin(self) -> None:
        self.begun, self.headers, self.parts, self._rest = True, {}, [], b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        if self.on_event is None or self._parser.get_status_code() != 200:
            self.parts.append(body)
            return
        *events, self._rest = (self._rest + body).split(b"\n\n")
        for event in events:
            fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
            self.on_event(fields.get(b"event", b"").decode(), fields.get(b"data", b""))

    async def exchange(self, request: bytes, on_event: OnEvent | None) -> int:
        self.begun, self.on_event = False, on_event
        try:
            return await self.ask(request)
        except BaseException:
            # The server stops a call whose client is gone.
            self.close()
            raise


class Client:
    """Sends requests to one server; a connection carries one at a time.

    base_url: without /v1. headers: of every request. limit_s: time limit of a request.
    """

    def __init__(
        self, base_url: str, headers: Mapping[str, str] = _NO_HEADERS, limit_s: float = 1800.0
    ) -> None:
        parts = urlsplit(base_url)
        self.base_url = base_url
        self._limit_s = limit_s
        self._tls = parts.scheme == "https"
        self._address = parts.hostname or "127.0.0.1", parts.port or (443 if self._tls else 80)
        self._path = parts.path.rstrip("/")
        self._head = f"Host: {parts.netloc}\r\nAccept: */*\r\n{_lines(headers)}"
        self._idle: list[_Line] = []

    async def __aenter__(self) -> Client:
        """Return the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close all connections."""
        for line in self._idle:
            line.close()
        self._idle.clear()

    async def get(self, path: str, headers: Mapping[str, str] = _NO_HEADERS) -> Answer:
        """See `send`."""
        return await self.send("GET", path, b"", headers)

    async def delete(self, path: str, headers: Mapping[str, str] = _NO_HEADERS) -> Answer:
        """See `send`."""
        return await self.send("DELETE", path, b"", headers)

    async def post(
        self,
        path: str,
        body: bytes | Mapping[str, Any] = b"",
        headers: Mapping[str, str] = _NO_HEADERS,
        on_event: OnEvent | None = None,
    ) -> Answer:
        """See `send`. body: a mapping is sent as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.send("POST", path, data, headers, on_event)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str] = _NO_HEADERS,
        on_event: OnEvent | None = None,
    ) -> Answer:
        """Send a request and read its answer.

        on_event: called with each event of a streamed answer when it arrives. Raises OSError
        without a whole answer; TimeoutError is one.
        """
        kind = "Content-Type: application/json\r\n" if body else ""
        head = (
            f"{method} {self._path}{path} HTTP/1.1\r\n{self._head}{_lines(headers)}{kind}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        request = head.encode() + body
        sent_s = time.monotonic()
        async with asyncio.timeout(self._limit_s):
            while self._idle:
                line = self._idle.pop()
                if line.usable:
                    status = await line.exchange(request, on_event)
                    if status or line.begun:
                        return self._answer(line, status, sent_s)
                    # The server closed the idle connection. The call was not lost.
            loop = asyncio.get_running_loop()
            host, port = self._address
            _, line = await loop.create_connection(_Line, host, port, ssl=self._tls or None)
            return self._answer(line, await line.exchange(request, on_event), sent_s)

    def _answer(self, line: _Line, status: int, sent_s: float) -> Answer:
        if not status:
            raise ConnectionError("the connection was closed before the answer")
        self._idle.append(line)
        return Answer(status, line.headers, b"".join(line.parts), sent_s, time.monotonic())


def _lines(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())
