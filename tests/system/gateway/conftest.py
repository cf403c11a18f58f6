"""A real gateway on a real port, in front of engines that follow a test's script.

The gateway, the engines and the test share one event loop, so a test can read the process table. On
exit, every gateway is checked: no calls in flight, no integrity faults, no busy connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httptools
import httpx
import pytest
import uvicorn
import uvicorn.server
from support.redis_server import RedisServer
from weft_gateway.app import Gateway
from weft_gateway.config import load
from weft_gateway.programs.table import ProcessTable
from weft_gateway.serve import server_config

DEADLINE_S = 20.0


@pytest.fixture(scope="session", autouse=True)
def _quick_shutdown() -> Iterator[None]:
    """Shorten the steps of 0.1 s in which uvicorn waits when it stops."""

    async def sleep(delay: float) -> None:
        await asyncio.sleep(min(delay, 0.005))

    quick = SimpleNamespace(**vars(asyncio) | {"sleep": sleep})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.server, "asyncio", quick)
        yield


async def wait_until(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """Wait until the condition holds, with a deadline, and return its value."""
    async with asyncio.timeout(DEADLINE_S):
        while not (value := condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert value, what
    return value


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """Yield a Redis server, which is killed after the test."""
    server = RedisServer(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def until() -> Callable[..., Awaitable[Any]]:
    """Return `await until(condition)`, which waits with a deadline and returns the condition's
    value.
    """
    return wait_until


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
    /weft/state. asked: the number of these answers. canned: fixed answers by path. metrics: their
    text; "": it has none.
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


@pytest.fixture
def engine() -> Callable[..., AbstractAsyncContextManager[Engine]]:
    """Return `async with engine(script=..., ...) as stub`, which runs an engine on a free port."""

    @contextlib.asynccontextmanager
    async def start(**options: Any) -> AsyncIterator[Engine]:
        stub = Engine(**options)
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(stub.handle(reader, writer))
            tasks.add(task)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        stub.server = server
        stub.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield stub
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    return start


@dataclass
class Weft:
    """A running gateway, with access from outside (`client`, `url`) and inside (`parts`)."""

    url: str
    client: httpx.AsyncClient
    parts: Gateway

    async def call(self, path: str = "/v1/chat/completions", **options: Any) -> httpx.Response:
        """Make one call. The default model is `tiny`."""
        body = {"model": "tiny", "messages": []} | options.pop("body", {})
        return await self.client.post(path, json=body, **options)

    def in_flight(self) -> int:
        return sum(self.parts.table.in_flight().values())


@pytest.fixture
def weft(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., AbstractAsyncContextManager[Weft]]:
    """Return `async with weft(engine, ..., setting=...) as gateway`, which runs a gateway.

    A module whose tests have several tenants names their API keys in KEYS. The gateway then
    requires one of them, and `gateway.client` sends the first one unless a test names another.
    """
    keys: tuple[str, ...] = getattr(request.module, "KEYS", ())
    headers = {"authorization": f"Bearer {keys[0]}"} if keys else {}

    @contextlib.asynccontextmanager
    async def start(
        *engines: Engine | str,
        table: ProcessTable | None = None,
        build: type[Gateway] = Gateway,
        **settings: Any,
    ) -> AsyncIterator[Weft]:
        urls = [e if isinstance(e, str) else e.url for e in engines]
        replicas = ",".join(f"r{number}={url}" for number, url in enumerate(urls))
        # The long interval leaves only the health checks at the start and after failures.
        defaults = {
            "replicas": replicas,
            "health_interval_s": 60,
            "balancer": "round_robin",
            "data_dir": str(tmp_path / "data"),
            "api_keys": ",".join(keys) or None,
        }
        parts = build(load(**defaults | settings), table=table)
        config = server_config(parts)
        config.port = 0
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve())
        await wait_until(lambda: server.started or task.done(), "the gateway has started")
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        try:
            async with httpx.AsyncClient(
                base_url=url, timeout=DEADLINE_S, trust_env=False, headers=headers
            ) as client:
                gateway = Weft(url, client, parts)
                yield gateway
            async with asyncio.timeout(DEADLINE_S):
                # Only a new reading shows calls of other gateways that have ended.
                while any((await parts.table.count()).values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            assert list(await parts.table.check()) == []
            await wait_until(
                lambda: not any(replica.upstream.busy for replica in parts.registry),
                "no connection is busy",
            )
        finally:
            server.should_exit = True
            await task

    return start
