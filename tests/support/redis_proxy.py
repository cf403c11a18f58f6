"""A proxy to a Redis server that can drop connections, or only the answers."""

from __future__ import annotations

import asyncio
import contextlib
from enum import Enum


class Line(Enum):
    """State of the proxy. OPEN: bytes pass. CUT: the port is closed. MUTE: requests reach the
    server, and the connection breaks before the answer."""

    OPEN = "open"
    CUT = "cut"
    MUTE = "mute"


class RedisProxy:
    """Proxy to the server on `port`. `async with RedisProxy(port) as proxy` sets `proxy.url`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._line = Line.OPEN
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self) -> RedisProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def set(self, line: Line) -> None:
        """Set the state. CUT also ends open connections."""
        self._line = line
        if line is Line.CUT:
            for writer in self._writers:
                writer.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._line is Line.CUT:
            writer.close()
            return
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError):
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                await asyncio.gather(self._ask(reader, back), self._answer(there, writer))
            finally:
                back.close()
        self._writers.discard(writer)
        writer.close()

    async def _ask(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            server.write(data)
        server.close()

    async def _answer(self, server: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await server.read(65536):
            if self._line is Line.MUTE:
                break
            writer.write(data)
        writer.close()
