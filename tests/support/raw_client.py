"""Clients of the gateway that send and receive raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

from support.waiting import DEADLINE_S

BODY = b'{"model": "tiny", "messages": []}'
CALL = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
WHOLE = CALL + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


class Raw:
    """A connection that sends and receives bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> bool:
        """Send the bytes. Return whether the gateway accepted them."""
        try:
            for piece in pieces:
                self.writer.write(piece)
                await self.writer.drain()
        except ConnectionError:
            return False
        return True

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Return the status, headers and JSON body of one answer."""
        async with asyncio.timeout(DEADLINE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, json.loads(body)

    async def ended(self) -> bytes:
        """Return all bytes up to the end of the connection."""
        got = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE_S):
                while data := await self.reader.read(65536):
                    got += data
        return got

    async def refused(self, status: int, code: str) -> dict[str, str]:
        """Assert that the answer is this error in OpenAI's shape, and that the connection ends."""
        got, headers, body = await self.answer()
        assert (got, body["error"]["code"]) == (status, code)
        assert headers["connection"] == "close"
        assert await self.ended() == b""
        return headers


@contextlib.asynccontextmanager
async def raw(gateway: Any, buffer: int = 0) -> AsyncIterator[Raw]:
    """Open a connection to a gateway. buffer: size of the socket's receive buffer in bytes."""
    plug = socket.socket()
    if buffer:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    plug.setblocking(False)
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    await asyncio.get_running_loop().sock_connect(plug, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=plug, limit=1 << 16)
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()
