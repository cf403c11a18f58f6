"""An engine over HTTP that follows a script."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httptools
from support.waiting import DEADLINE_S


class Received:
    """A request as an engine received it."""

    def __init__(self) -> None:
        self.target = ""
        self.headers: dict[str, str] = {}
        self.raw = b""
        self.method = ""
        self.done = False

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    def on_url(self, url: bytes) -> None:
        self.target += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.raw += body

    def on_message_complete(self) -> None:
        self.done = True


Script = Callable[["Wire", Received], Awaitable[None]]


class Wire:
    """The connection of one request, to which a script writes. Each piece is flushed before the
    next.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def plain(
        self, body: Any, status: str = "200 OK", headers: dict[str, str] | None = None
    ) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        if "content-type" not in lines:
            lines += "content-type: application/json\r\n"
        head = f"HTTP/1.1 {status}\r\n{lines}content-length: {len(raw)}\r\n\r\n"
        await self.send(head.encode() + raw)

    async def stream(self, *pieces: bytes, end: bool = True) -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        await self.pieces(*pieces, end=end)

    async def pieces(self, *pieces: bytes, end: bool = True) -> None:
        await self.send(*(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces))
        if end:
            await self.send(b"0\r\n\r\n")

    async def closed(self) -> None:
        """Wait until the gateway has closed this connection."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE_S):
                assert await self._reader.read(1) == b""


async def echo(wire: Wire, request: Received) -> None:
    """Answer with the name of the requested model."""
    await wire.plain({"id": "resp_1", "object": "echo", "model": request.json.get("model")})


@dataclass
class Engine:
    """An engine that a test controls.

    weft: it answers as an engine with the plugin. late: health checks are answered after this
    event. owner: the `owned_by` of its models. state: an error status with which it answers
    /weft/state. asked: the number of these answers. checks: the number of health checks. canned:
    fixed answers by path. metrics: their text; "": it has none.
    """

    script: Script = echo
    models: tuple[str, ...] = ("tiny",)
    weft: bool = True
    healthy: bool = True
    url: str = ""
    requests: list[Received] = field(default_factory=list)
    other: list[Received] = field(default_factory=list)
    canned: dict[str, Any] = field(default_factory=dict)
    connections: int = 0
    closed_connections: int = 0
    server: asyncio.Server | None = None
    late: asyncio.Event | None = None
    owner: str = "vllm"
    state: str = ""
    asked: int = 0
    checks: int = 0
    metrics: str = ""
    idle: set[asyncio.StreamWriter] = field(default_factory=set)

    def refuse(self) -> None:
        """Stop listening and close idle connections, as a draining server does."""
        assert self.server is not None
        self.server.close()
        for writer in self.idle:
            writer.close()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        wire = Wire(reader, writer)
        try:
            while True:
                self.idle.add(writer)
                request = await _read(reader)
                self.idle.discard(writer)
                if request is None:
                    break
                await self._answer(wire, request)
        except ConnectionError:
            pass
        finally:
            self.idle.discard(writer)
            self.closed_connections += 1
            writer.close()

    async def _answer(self, wire: Wire, request: Received) -> None:
        path = request.target.partition("?")[0]
        if path == "/health":
            self.checks += 1
            if self.late is not None:
                await self.late.wait()
            await wire.plain({}, "200 OK" if self.healthy else "503 Service Unavailable")
        elif path == "/v1/models":
            cards = [
                {"id": m, "object": "model", "owned_by": self.owner, "max_model_len": 4096}
                for m in self.models
            ]
            await wire.plain({"object": "list", "data": cards})
        elif path in self.canned:
            self.other.append(request)
            await wire.plain(self.canned[path])
        elif path == "/metrics":
            await wire.plain(self.metrics.encode(), "200 OK" if self.metrics else "404 Not Found")
        elif path == "/weft/state" and self.state:
            self.asked += 1
            await wire.plain({"detail": "no"}, self.state)
        elif path == "/weft/state" and self.weft:
            await wire.plain({"weft": {"policy": "fcfs"}})
        elif path.startswith("/weft/"):
            self.other.append(request)
            await wire.plain({"detail": "Not Found"}, "404 Not Found")
        else:
            self.requests.append(request)
            await self.script(wire, request)


async def _read(reader: asyncio.StreamReader) -> Received | None:
    request = Received()
    parser = httptools.HttpRequestParser(request)
    while not request.done:
        data = await reader.read(65536)
        if not data:
            return None
        parser.feed_data(data)
    request.method = parser.get_method().decode()
    return request
