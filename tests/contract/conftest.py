"""Fixtures of every process table. The tables on Redis use a real server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.redis_server import RedisServer
from weft_gateway.programs.memory import MemoryTable
from weft_gateway.programs.redis import RedisTable
from weft_gateway.programs.resilient import ResilientTable

_prefixes = itertools.count()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(Path(tmp_path_factory.mktemp("redis")))
    yield server
    server.kill()


@pytest.fixture(params=["memory", "redis", "resilient"])
def make_table(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Return a factory of empty tables, which takes `per_tenant`. Call it inside the event loop
    that uses the table.
    """
    if request.param == "memory":
        return MemoryTable
    server: RedisServer = request.getfixturevalue("redis_server")
    if request.param == "resilient":
        return lambda **limits: ResilientTable(
            RedisTable(server.url, f"test{next(_prefixes)}", timeout_s=20.0, **limits)
        )
    return lambda **limits: RedisTable(
        server.url, f"test{next(_prefixes)}", timeout_s=20.0, **limits
    )
