"""The process table on Redis: many gateways, one table. Scripts in `lua/`, one round trip each.

All keys carry the prefix as a hash tag, so that a Redis Cluster keeps them in one slot: a script
may then touch a program's row, the replicas' counts and the indexes together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, Final, cast
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from gateway.model import Closing, Opened, Opening, Outcome, Program, ProgramKey
from gateway.programs import rows, rules
from gateway.programs.rows import encode, number
from gateway.programs.table import TableUnavailable

# Programs whose last seen state `peek` can give.
_SEEN: Final = 16_384
_TIMEOUT_S: Final = 2.0
_CONNECTIONS: Final = 32
_SCAN: Final = 500


class RedisTable:
    """See ProcessTable. `url`: redis://, rediss:// or unix://. `prefix` keeps tables apart."""

    def __init__(self, url: str, prefix: str = "weft") -> None:
        # A burst of calls waits for a connection instead of opening one each.
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=_TIMEOUT_S,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
        )
        self._redis: Redis = Redis.from_pool(pool)
        self._where = _without_password(url)
        self._prefix = b"{" + encode(prefix) + b"}:"
        self._in_flight: dict[str, int] = {}
        self._seen: OrderedDict[ProgramKey, Program] = OrderedDict()
        lua = files("gateway.programs") / "lua"
        self._open, self._close, self._start, self._end = (
            self._redis.register_script((lua / f"{name}.lua").read_text())
            for name in ("open", "close", "start", "end")
        )

    async def open_call(self, opening: Opening) -> Opened:
        """See ProcessTable."""
        arguments: list[bytes | str | int] = [
            _member(opening.key),
            encode(opening.key.program),
            encode(opening.call),
            encode(opening.thread),
            encode(opening.candidate),
            int(opening.sticky),
            number(opening.now_s),
            int(opening.ephemeral),
            *(encode(name) for name in opening.eligible),
        ]
        async with self._reaching():
            try:
                reply = await self._open(keys=self._keys(opening.key), args=arguments)
            except ResponseError as error:
                if "WEFT" in str(error):
                    raise ValueError(f"call {opening.call} is open already") from None
                raise
        replica, created, row, in_flight = reply
        program = self._saw(opening.key, rows.pairs(row))
        self._in_flight = rows.counts(in_flight)
        return Opened(program, rows.decode(replica), bool(created), self._in_flight)

    async def close_call(self, closing: Closing) -> Program | None:
        """See ProcessTable."""
        rules.check_closing(closing)
        arguments: list[bytes | str | int] = [
            _member(closing.key),
            encode(closing.key.program),
            encode(closing.call),
            number(closing.now_s),
            int(closing.outcome is Outcome.ERROR),
            number(closing.service_s),
            number(closing.waiting_s),
            int(closing.prompt_tokens),
            int(closing.cached_tokens),
            int(closing.output_tokens),
            int(closing.preemptions),
        ]
        async with self._reaching():
            reply = await self._close(keys=self._keys(closing.key), args=arguments)
        if reply is None:
            return None
        row, in_flight = reply
        self._in_flight = rows.counts(in_flight)
        program = self._saw(closing.key, rows.pairs(row))
        if rules.goes(program):
            self._seen.pop(closing.key, None)
        return program

    async def start(self, key: ProgramKey, now_s: float) -> tuple[Program, bool]:
        """See ProcessTable."""
        async with self._reaching():
            created, row = await self._start(
                keys=self._index_keys(key),
                args=[_member(key), encode(key.program), number(now_s)],
            )
        return self._saw(key, rows.pairs(row)), bool(created)

    async def end(self, key: ProgramKey, now_s: float) -> Program | None:
        """See ProcessTable."""
        async with self._reaching():
            row = await self._end(
                keys=self._index_keys(key), args=[_member(key), encode(key.program)]
            )
        self._seen.pop(key, None)
        return None if row is None else rows.program(key, rows.pairs(row))

    async def get(self, key: ProgramKey) -> Program | None:
        """See ProcessTable."""
        async with self._reaching():
            row = await cast(Awaitable[dict[bytes, bytes]], self._redis.hgetall(self._row(key)))
        return self._saw(key, row) if row else None

    async def programs(self, tenant: str, limit: int, after: str = "") -> Sequence[Program]:
        """See ProcessTable."""
        first = b"(" + encode(after) if after else b"-"
        async with self._reaching():
            names = cast(
                list[bytes],
                await self._redis.zrangebylex(self._names(tenant), first, b"+", start=0, num=limit),
            )
            keys = [ProgramKey(tenant, rows.decode(name)) for name in names]
            found = await self._rows(keys)
        return [rows.program(key, row) for key, row in zip(keys, found, strict=True) if row]

    def peek(self, key: ProgramKey) -> Program | None:
        """See ProcessTable."""
        return self._seen.get(key)

    def in_flight(self) -> Mapping[str, int]:
        """See ProcessTable."""
        return self._in_flight

    async def expire(self, now_s: float, idle_s: float) -> Sequence[ProgramKey]:
        """See ProcessTable."""
        before = now_s - idle_s
        gone = []
        async with self._reaching():
            members = cast(
                list[bytes],
                await self._redis.zrangebyscore(
                    self._prefix + b"activity", "-inf", f"({number(before)}"
                ),
            )
            for member in members:
                key = _key(member)
                # The script looks again: the program may have been called in the meantime.
                row = await self._end(
                    keys=self._index_keys(key),
                    args=[member, encode(key.program), number(before)],
                )
                if row is not None:
                    self._seen.pop(key, None)
                    gone.append(key)
        return gone

    async def check(self) -> Sequence[str]:
        """See ProcessTable. Exact while no call is being opened or closed."""
        found: list[str] = []
        counts: dict[str, int] = {}
        async with self._reaching():
            members = cast(list[bytes], await self._redis.zrange(self._prefix + b"activity", 0, -1))
            for first in range(0, len(members), _SCAN):
                keys = [_key(member) for member in members[first : first + _SCAN]]
                for key, row in zip(keys, await self._rows(keys), strict=True):
                    if not row:
                        found.append(f"{key}: the index names a program that has no row")
                        continue
                    program = rows.program(key, row)
                    found += rules.violations(program)
                    for thread in program.threads:
                        counts[thread.replica] = counts.get(thread.replica, 0) + 1
            stored = await cast(
                Awaitable[dict[bytes, bytes]], self._redis.hgetall(self._prefix + b"in_flight")
            )
        kept = {rows.decode(name): int(value) for name, value in stored.items()}
        if kept != counts:
            found.append(f"in flight {kept}, but threads give {counts}")
        return found

    async def ping(self) -> None:
        """See ProcessTable."""
        async with self._reaching():
            await self._redis.ping()

    async def aclose(self) -> None:
        """See ProcessTable."""
        await self._redis.aclose()

    async def _rows(self, keys: Sequence[ProgramKey]) -> list[dict[bytes, bytes]]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hgetall(self._row(key))
            return cast(list[dict[bytes, bytes]], await pipe.execute())

    def _saw(self, key: ProgramKey, row: Mapping[bytes, bytes]) -> Program:
        program = rows.program(key, row)
        if not program.ephemeral:
            self._seen[key] = program
            self._seen.move_to_end(key)
            while len(self._seen) > _SEEN:
                self._seen.popitem(last=False)
        return program

    def _row(self, key: ProgramKey) -> bytes:
        return self._prefix + b"p:" + _member(key)

    def _names(self, tenant: str) -> bytes:
        return self._prefix + b"n:" + encode(tenant)

    def _keys(self, key: ProgramKey) -> list[Any]:
        prefix = self._prefix
        return [
            self._row(key),
            prefix + b"in_flight",
            prefix + b"activity",
            self._names(key.tenant),
        ]

    def _index_keys(self, key: ProgramKey) -> list[Any]:
        return [self._row(key), self._prefix + b"activity", self._names(key.tenant)]

    @asynccontextmanager
    async def _reaching(self) -> AsyncIterator[None]:
        try:
            yield
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            raise TableUnavailable(
                f"the process table at {self._where} cannot be reached: {error}"
            ) from error
        except RedisError as error:
            raise TableUnavailable(f"the process table at {self._where}: {error}") from error


def _member(key: ProgramKey) -> bytes:
    # A tenant has no slash, so the first one ends it.
    return encode(f"{key.tenant}/{key.program}")


def _key(member: bytes) -> ProgramKey:
    tenant, _, program = rows.decode(member).partition("/")
    return ProgramKey(tenant, program)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return parts.geturl()
