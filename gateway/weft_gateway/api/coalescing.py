"""Coalesces the writes of one turn of the event loop into one system call.

uvicorn writes an answer's head and body separately, and each socket write costs as much as all of a
call's bookkeeping. A coalescing transport collects the writes and sends them once, in the same
turn.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class CoalescingTransport:
    """A transport that sends collected writes after the running callbacks.

    All other methods are those of the wrapped transport. Closing sends collected writes first.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        # Called for each answer, and a lookup through `__getattr__` takes several times as long.
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Collect bytes to send in this turn."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send collected writes, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts = self._parts
        if parts:
            self._parts = []
            if self._transport.is_closing():
                return
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))


class CoalescingProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol on a coalescing transport."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up a new connection."""
        coalescing = CoalescingTransport(cast(asyncio.Transport, transport), self.loop)
        super().connection_made(cast(asyncio.Transport, coalescing))
