"""A gateway's one Redis client: a bounded pool, one kind of error, one `away` state.

The process table, stored responses, limits and lineage share it. A request without a reply is
reported to `on_loss`. The table then sets `away`, probes the server, and resets `away` when the
server replies. While `away` is set, all other requests fail at once, and all of them work from
memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Final
from urllib.parse import urlsplit

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from weft_gateway.programs import rows
from weft_gateway.programs.table import TableUnavailable

_CONNECTIONS: Final = 32


class RedisLink:
    """Connections to one server, and the keys under one prefix. away: whether the server is known
    not to reply. on_loss: called if a request gets no reply.
    """

    def __init__(self, url: str, prefix: str, timeout_s: float) -> None:
        # No retries: after a broken connection it is unknown whether a script ran, and it must not
        # run twice.
        pool = ConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )
        self.redis: Redis = Redis.from_pool(pool)
        # A burst of calls waits for connections in FIFO order instead of opening one each. In
        # redis-py's blocking pool, a waiter can starve while others take connections repeatedly.
        self._turn = asyncio.Semaphore(_CONNECTIONS)
        self._timeout_s = timeout_s
        self.away = False
        self.on_loss: Callable[[TableUnavailable], object] = lambda error: None
        self._where = _without_credentials(url)
        self.keys = rows.Keys(prefix)

    def script(self, *names: str) -> AsyncScript:
        """Register the script that consists of these files of `lua/`, concatenated."""
        lua = files("weft_gateway.programs") / "lua"
        return self.redis.register_script(
            "".join((lua / f"{name}.lua").read_text() for name in names)
        )

    async def ping(self) -> None:
        """Raise TableUnavailable if the server does not reply."""
        async with self.reaching():
            await self.redis.ping()

    async def aclose(self) -> None:
        """Close every connection."""
        await self.redis.aclose()

    @asynccontextmanager
    async def reaching(self, *, probe: bool = False) -> AsyncIterator[None]:
        """Wait for a free connection and hold it for the body of the context. Inside,
        TableUnavailable with the server's name is raised if the server refuses, does not reply
        within `timeout_s` seconds, or is away. probe: try even if it is away.
        """
        if self.away and not probe:
            raise self._unavailable("does not reply")
        await self._take_turn()
        try:
            if self.away and not probe:  # Lost while this request waited.
                raise self._unavailable("does not reply")
            yield
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            # Idle connections are probably broken, too.
            with contextlib.suppress(RedisError, OSError):
                await self.redis.connection_pool.disconnect(inuse_connections=False)
            lost = self._unavailable(f"cannot be reached: {_reason(error)}")
            self.on_loss(lost)
            raise lost from error
        except RedisError as error:
            raise self._unavailable(f"refused: {error}") from error
        finally:
            self._turn.release()

    async def _take_turn(self) -> None:
        if not self._turn.locked():  # No wait, so no timer is needed.
            await self._turn.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._turn.acquire()
        except TimeoutError:
            raise self._unavailable("is too slow: no free connection") from None

    def _unavailable(self, what: str) -> TableUnavailable:
        return TableUnavailable(f"the process table at {self._where} {what}")


def _without_credentials(url: str) -> str:
    # A password may also be in the query.
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _reason(error: Exception) -> str:
    """Return why a connection failed. Messages of asyncio contain addresses as Python writes them,
    one for each address of a host name.
    """
    number = re.search(r"Err(?:no|or) (\d+)", str(error))
    return os.strerror(int(number[1])) if number else str(error)
