"""A real gateway on a real port, in front of engines that follow a test's script.

The gateway, the engines and the test share one event loop, so a test can read the process table. On
exit, every gateway is checked: no calls in flight, no integrity faults, no busy connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
import uvicorn.server
from support.redis_server import RedisServer
from support.scripted_engine import Engine
from support.waiting import DEADLINE_S
from weft_gateway.app import Gateway
from weft_gateway.config import Settings, load
from weft_gateway.constants import Constants
from weft_gateway.programs.table import ProcessTable
from weft_gateway.serve import server_config

# In the keys file, for all keys.
LIMITS = ("requests_per_minute", "tokens_per_minute", "calls_in_flight")


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


@pytest.fixture
def skip() -> Callable[[float], Awaitable[None]]:
    """Return `await skip(seconds)`, which moves the clock of the event loop forward, so that a test
    of a timeout neither waits for it nor depends on the pace of the machine.
    """
    ahead = 0.0

    async def move(seconds: float) -> None:
        nonlocal ahead
        # What has arrived is read before the clock moves, and what is due is done after it.
        await asyncio.sleep(0.005)
        ahead += seconds
        asyncio.get_running_loop().time = lambda: time.monotonic() + ahead  # type: ignore[method-assign]
        await asyncio.sleep(0.005)

    return move


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

    A name is a setting, a member of `Constants`, or a limit of every key.
    """
    known = Settings.model_fields
    keys: tuple[str, ...] = getattr(request.module, "KEYS", ())

    @contextlib.asynccontextmanager
    async def start(
        *engines: Engine | str,
        table: ProcessTable | None = None,
        build: type[Gateway] = Gateway,
        **settings: Any,
    ) -> AsyncIterator[Weft]:
        urls = [e if isinstance(e, str) else e.url for e in engines]
        replicas = ",".join(f"r{number}={url}" for number, url in enumerate(urls))
        limits = {name: settings.pop(name) for name in LIMITS if name in settings}
        given = {name: settings.pop(name) for name in [*settings] if name not in known}
        # The long interval leaves only the health checks at the start and after failures. With the
        # long timeout, a stall of the machine is no outage of Redis.
        constants = Constants(**{"health_interval_s": 60, "redis_timeout_s": DEADLINE_S} | given)
        defaults = {
            "replicas": replicas,
            "balancer": "round_robin",
            "data_dir": str(tmp_path / "data"),
            "api_keys": ",".join(keys) or None,
        }
        if limits:
            file = tmp_path / "limits.toml"
            lines = [f"{name} = {value}\n" for name, value in limits.items()]
            file.write_text("[default]\n" + "".join(lines))
            defaults["keys_file"] = str(file)
            # Limits hold for keys.
            defaults["api_keys"] = defaults["api_keys"] or "test"
        parts = build(load(**defaults | settings), table, constants)
        config = server_config(parts)
        config.port = 0
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve())
        await wait_until(lambda: server.started or task.done(), "the gateway has started")
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        try:
            # The processes of runs call the gateway at its port.
            parts.runs.url = url
            key = keys[0] if keys else "test" if limits else ""
            headers = {"authorization": f"Bearer {key}"} if key else {}
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
