"""One system call for what an answer writes in one turn of the event loop.

uvicorn writes an answer's head and its body separately, and each write to a socket costs as much as
all of a call's bookkeeping. A corked transport collects them and writes once, in the same turn.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class CorkedTransport:
    """A transport whose writes go out together when the running callbacks are done.

    Everything else is the transport's own. Closing writes first what was collected.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        # Asked with each answer, and a look-up by `__getattr__` takes several times as long.
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Take bytes to write in this turn."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Write what was collected, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts = self._parts
        if parts:
            self._parts = []
            if self._transport.is_closing():
                return
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))


class CorkedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol on a corked transport."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection."""
        corked = CorkedTransport(cast(asyncio.Transport, transport), self.loop)
        super().connection_made(cast(asyncio.Transport, corked))
