"""The table's scripts on a Redis server, typed: one method, one round trip. Keeps no state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from gateway.model import Closing, Opening, Outcome, Program, ProgramKey
from gateway.programs import rows
from gateway.programs.rows import encode, number
from gateway.programs.table import TableUnavailable

_TIMEOUT_S: Final = 2.0
_CONNECTIONS: Final = 32


class OpenedRow(NamedTuple):
    """What `open.lua` answers. in_flight: open calls by replica, over all gateways."""

    replica: str
    created: bool
    program: Program
    in_flight: dict[str, int]


class ClosedRow(NamedTuple):
    """What `close.lua` answers."""

    program: Program
    in_flight: dict[str, int]


class RedisStore:
    """One table's keys on one server. Every method raises TableUnavailable, which names the server,
    if it cannot be reached or refuses."""

    def __init__(self, url: str, prefix: str) -> None:
        # No retries: whether a script ran before its connection broke is not known, and it must not
        # run twice.
        pool = ConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis: Redis = Redis.from_pool(pool)
        # A burst of calls waits for a connection instead of opening one each, and first come, first
        # served: redis-py's blocking pool lets a waiter starve while others come back for more.
        self._turn = asyncio.Semaphore(_CONNECTIONS)
        self._where = _without_credentials(url)
        self.keys = rows.Keys.of(prefix)
        lua = files("gateway.programs") / "lua"
        pack = (lua / "pack.lua").read_text()
        self._open, self._close, self._start, self._end = (
            self._redis.register_script(pack + (lua / f"{name}.lua").read_text())
            for name in ("open", "close", "start", "end")
        )

    async def open(self, opening: Opening, lease: bytes) -> OpenedRow:
        """Open a call. ValueError if it is open already: nothing has changed."""
        arguments: list[Any] = [
            rows.member(opening.key),
            encode(opening.key.program),
            encode(opening.call),
            encode(opening.thread),
            encode(opening.candidate),
            int(opening.sticky),
            number(opening.now_s),
            int(opening.ephemeral),
            lease,
            *map(encode, opening.eligible),
        ]
        async with self._reaching():
            try:
                reply = await self._open(keys=self._call_keys(opening.key), args=arguments)
            except ResponseError as error:
                if "WEFT" in str(error):
                    raise ValueError(f"call {opening.call} is open already") from None
                raise
        replica, created, size, *rest = rows.unpack(reply)
        counts, row = rest[: int(size)], rest[int(size) :]
        return OpenedRow(
            rows.decode(replica),
            created == b"1",
            rows.program(opening.key, rows.pairs(row)),
            rows.counts(counts),
        )

    async def close(self, closing: Closing, lease: bytes) -> ClosedRow | None:
        """Close a call; None if it is not open."""
        arguments: list[Any] = [
            rows.member(closing.key),
            encode(closing.key.program),
            encode(closing.call),
            number(closing.now_s),
            int(closing.outcome is Outcome.ERROR),
            number(closing.service_s),
            number(closing.waiting_s),
            closing.prompt_tokens,
            closing.cached_tokens,
            closing.output_tokens,
            closing.preemptions,
            lease,
        ]
        async with self._reaching():
            reply = await self._close(keys=self._call_keys(closing.key), args=arguments)
        if reply is None:
            return None
        size, *rest = rows.unpack(reply)
        counts, row = rest[: int(size)], rest[int(size) :]
        return ClosedRow(rows.program(closing.key, rows.pairs(row)), rows.counts(counts))

    async def start(self, key: ProgramKey, now_s: float) -> tuple[Program, bool]:
        """Create a program or keep the one that is there; whether it is new."""
        arguments: list[Any] = [rows.member(key), encode(key.program), number(now_s)]
        async with self._reaching():
            reply = await self._start(keys=self._index_keys(key), args=arguments)
        created, *row = rows.unpack(reply)
        return rows.program(key, rows.pairs(row)), created == b"1"

    async def end(self, key: ProgramKey) -> Program | None:
        """End a program; None if it is unknown or ended."""
        arguments = [rows.member(key), encode(key.program)]
        async with self._reaching():
            reply = await self._end(keys=self._index_keys(key), args=arguments)
        return None if reply is None else rows.program(key, rows.pairs(rows.unpack(reply)))

    async def end_idle(self, keys: Sequence[ProgramKey], before: float) -> list[ProgramKey]:
        """End those programs that have no open call and were last active earlier than `before`.
        The script looks again: they may have been called since they were found."""
        async with self._reaching(), self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                await self._end(
                    keys=self._index_keys(key),
                    args=[rows.member(key), encode(key.program), number(before)],
                    client=pipe,
                )
            ended = await pipe.execute()
        return [key for key, reply in zip(keys, ended, strict=True) if reply is not None]

    async def read(self, keys: Iterable[ProgramKey]) -> list[Program | None]:
        """Programs as they are now; None for those that do not exist."""
        wanted = list(keys)
        async with self._reaching(), self._redis.pipeline(transaction=False) as pipe:
            for key in wanted:
                pipe.hgetall(self.keys.row(key))
            found = await pipe.execute()
        return [
            rows.program(key, row) if row else None for key, row in zip(wanted, found, strict=True)
        ]

    async def in_flight(self) -> dict[str, int]:
        """Open calls by replica."""
        async with self._reaching():
            stored = await cast(Any, self._redis.hgetall(self.keys.in_flight))
        return {rows.decode(name): int(value) for name, value in stored.items()}

    async def members(self, index: bytes) -> list[bytes]:
        """All members of a sorted set, in its order."""
        async with self._reaching():
            return cast(list[bytes], await self._redis.zrange(index, 0, -1))

    async def older(
        self, index: bytes, before: float, skip: int = 0, limit: int = -1
    ) -> list[bytes]:
        """Members of a sorted set with scores below `before`, after the first `skip`; -1: all."""
        async with self._reaching():
            found = await self._redis.zrangebyscore(
                index, "-inf", f"({number(before)}", start=skip, num=limit
            )
        return cast(list[bytes], found)

    async def names(self, tenant: str, after: str, limit: int) -> list[ProgramKey]:
        """A tenant's named programs in the order of their ids, those greater than `after`."""
        first = b"(" + encode(after) if after else b"-"
        async with self._reaching():
            found = await self._redis.zrangebylex(
                self.keys.names(tenant), first, b"+", start=0, num=limit
            )
        return [ProgramKey(tenant, rows.decode(name)) for name in cast(list[bytes], found)]

    async def renew(self, leases: Iterable[bytes], now_s: float) -> None:
        """Give a sign for calls that are open; those that are not stay so."""
        async with self._reaching():
            await self._redis.zadd(self.keys.leases, dict.fromkeys(leases, now_s), xx=True)

    async def every_key(self) -> list[bytes]:
        """The keys of this table, of which one may come twice. Looks at the whole database."""
        base = self.keys.base
        async with self._reaching():
            return [raw async for raw in self._redis.scan_iter(count=1000) if raw.startswith(base)]

    async def ping(self) -> None:
        """Ask for a sign of life."""
        async with self._reaching():
            await self._redis.ping()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._redis.aclose()

    def _call_keys(self, key: ProgramKey) -> list[Any]:
        keys = self.keys
        return [
            keys.row(key), keys.in_flight, keys.activity, keys.names(key.tenant), keys.leases,
        ]  # fmt: skip

    def _index_keys(self, key: ProgramKey) -> list[Any]:
        return [self.keys.row(key), self.keys.activity, self.keys.names(key.tenant)]

    async def _take_turn(self) -> None:
        if not self._turn.locked():  # Then it does not wait, and needs no timer.
            await self._turn.acquire()
            return
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._turn.acquire()
        except TimeoutError:
            raise TableUnavailable(
                f"the process table at {self._where} is too slow: no free connection"
            ) from None

    @asynccontextmanager
    async def _reaching(self) -> AsyncIterator[None]:
        await self._take_turn()
        try:
            yield
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            raise TableUnavailable(
                f"the process table at {self._where} cannot be reached: {error}"
            ) from error
        except RedisError as error:
            raise TableUnavailable(f"the process table at {self._where}: {error}") from error
        finally:
            self._turn.release()


def _without_credentials(url: str) -> str:
    # A password may also be in the query.
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
