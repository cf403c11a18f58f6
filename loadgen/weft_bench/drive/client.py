"""HTTP client of the agents with keep-alive connections and little overhead.

A connection of `weft_bench.drive.load` carries one call at a time, so the client has as many
connections as concurrent calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from weft_bench.drive.load import Connection

_LONGEST_S: Final = 600.0


class _Line(Connection):
    """A connection that keeps the answer's body."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def on_message_begin(self) -> None:
        self._parts.clear()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    async def post(self, request: bytes) -> tuple[int, bytes]:
        """Return status and body; status 0 if the connection was lost."""
        self._parts.clear()
        status = await self.ask(request)
        return status, b"".join(self._parts)


class Client:
    """Posts to one front. The headers of `post` are sent unchanged."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._idle: list[_Line] = []
        self._head = (
            f"Host: {parts.netloc}\r\nAuthorization: Bearer none\r\n"
            "Accept: application/json\r\nContent-Type: application/json\r\n"
        )

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Return status and body. Raises OSError or TimeoutError without an answer."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST {path} HTTP/1.1\r\n{self._head}{lines}Content-Length: {len(body)}\r\n\r\n"
        request = head.encode() + body
        while self._idle:
            line = self._idle.pop()
            if line.usable:
                status, answer = await self._ask(line, request)
                if status:
                    return status, answer
                # The server closed the idle connection. The call was not lost.
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(_Line, self._host, self._port)
        status, answer = await self._ask(line, request)
        if not status:
            raise ConnectionError("the connection was closed before the answer")
        return status, answer

    def close(self) -> None:
        """Close all connections."""
        for line in self._idle:
            line.close()
        self._idle.clear()

    async def _ask(self, line: _Line, request: bytes) -> tuple[int, bytes]:
        try:
            status, answer = await asyncio.wait_for(line.post(request), _LONGEST_S)
        except TimeoutError:
            line.close()
            raise
        if status:
            self._idle.append(line)
        return status, answer
