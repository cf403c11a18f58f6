"""The table's scripts on a Redis server, typed: one method, one round trip. Keeps no state."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
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

from gateway.model import Census, Closing, Opening, Outcome, Program, ProgramKey
from gateway.programs import rows, rules
from gateway.programs.events import Ended, Event, Started
from gateway.programs.rows import encode, number
from gateway.programs.table import TableUnavailable

_CONNECTIONS: Final = 32
_Arguments = tuple[list[Any], list[Any]]


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
    if it cannot be reached within `timeout_s` seconds or refuses."""

    def __init__(
        self, url: str, prefix: str, timeout_s: float, per_tenant: int = rules.MAX_PER_TENANT
    ) -> None:
        """per_tenant: named programs of a tenant; see ProcessTable."""
        self._per_tenant = per_tenant
        # No retries: whether a script ran before its connection broke is not known, and it must not
        # run twice.
        pool = ConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis: Redis = Redis.from_pool(pool)
        # A burst of calls waits for a connection instead of opening one each, and first come, first
        # served: redis-py's blocking pool lets a waiter starve while others come back for more.
        self._turn = asyncio.Semaphore(_CONNECTIONS)
        self._timeout_s = timeout_s
        self._outages = 0
        self._where = _without_credentials(url)
        self.keys = rows.Keys.of(prefix)
        lua = files("gateway.programs") / "lua"
        common = (lua / "common.lua").read_text()
        self._open, self._close, self._start, self._end, self._restore, self._answers = (
            self._redis.register_script(common + (lua / f"{name}.lua").read_text())
            for name in ("open", "close", "start", "end", "restore", "answers")
        )

    async def open(self, opening: Opening) -> OpenedRow:
        """Open a call. ValueError if it is open already: nothing has changed."""
        async with self._reaching():
            try:
                reply = await self._open(*self._opening(opening))
            except ResponseError as error:
                if _refused(error):
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

    async def close(self, closing: Closing) -> ClosedRow | None:
        """Close a call; None if it is not open."""
        async with self._reaching():
            reply = await self._close(*self._closing(closing))
        if reply is None:
            return None
        size, *rest = rows.unpack(reply)
        counts, row = rest[: int(size)], rest[int(size) :]
        return ClosedRow(rows.program(closing.key, rows.pairs(row)), rows.counts(counts))

    async def start(self, event: Started) -> tuple[Program, bool]:
        """Create a program or keep the one that is there; whether it is new."""
        async with self._reaching():
            reply = await self._start(*self._starting(event))
        created, *row = rows.unpack(reply)
        return rows.program(event.key, rows.pairs(row)), created == b"1"

    async def end(self, event: Ended) -> Program | None:
        """End a program; None if it is unknown or ended."""
        async with self._reaching():
            reply = await self._end(*self._ending(event))
        return None if reply is None else rows.program(event.key, rows.pairs(rows.unpack(reply)))

    async def replay(self, events: Sequence[Event]) -> None:
        """Make these changes, in this order, one round trip. Those that were made before, by an
        earlier replay or by a call whose answer was lost, change nothing."""
        async with self._reaching(), self._redis.pipeline(transaction=False) as pipe:
            for event in events:
                match event:
                    case Opening():
                        await self._open(*self._opening(event, replay=True), client=pipe)
                    case Closing():
                        await self._close(*self._closing(event), client=pipe)
                    case Started():
                        await self._start(*self._starting(event, replay=True), client=pipe)
                    case Ended():
                        await self._end(*self._ending(event, replay=True), client=pipe)
            for reply in await pipe.execute(raise_on_error=False):
                if isinstance(reply, Exception) and not _refused(reply):
                    raise reply

    async def restore(self, programs: Sequence[Program]) -> None:
        """Give back what is known of rows that the server has lost, one round trip."""
        async with self._reaching(), self._redis.pipeline(transaction=False) as pipe:
            for program in programs:
                key = program.key
                arguments = [rows.member(key), encode(key.program), *rows.given_back(program)]
                await self._restore(self._index_keys(key)[:5], arguments, client=pipe)
            await pipe.execute()

    async def end_idle(self, keys: Sequence[ProgramKey], before: float) -> list[ProgramKey]:
        """End those programs that have no open call and were last active earlier than `before`.
        The script looks again: they may have been called since they were found."""
        async with self._reaching(), self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                event = Ended(key, before)
                await self._end(*self._ending(event, before=number(before)), client=pipe)
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

    async def census(self) -> Census:
        """Programs created and ended since the table began, and those alive."""
        async with self._reaching(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hmget(self.keys.totals, ["created", "ended"])
            pipe.zcard(self.keys.activity)
            (created, ended), alive = await pipe.execute()
        return Census(int(created or 0), int(ended or 0), alive)

    async def identity(self) -> bytes:
        """The table's name, which it gets from whoever asks first. Another one than before says
        that everything was lost in between."""
        async with self._reaching(), self._redis.pipeline(transaction=False) as pipe:
            pipe.set(self.keys.table, os.urandom(12).hex(), nx=True)
            pipe.get(self.keys.table)
            _, name = await pipe.execute()
        return cast(bytes, name)

    async def answer(self, member: bytes) -> bytes | None:
        """What is known of a stored answer."""
        async with self._reaching():
            return cast(
                "bytes | None", await cast(Any, self._redis.hget(self.keys.answers, member))
            )

    async def keep_answers(
        self, answers: Mapping[bytes, bytes], now_s: float, keep_s: float, limit: int
    ) -> None:
        """Keep what is known of stored answers: at most `limit`, for `keep_s` seconds."""
        flat = [part for pair in answers.items() for part in pair]
        async with self._reaching():
            await self._answers(
                [self.keys.answers, self.keys.answer_ages],
                [number(now_s), number(keep_s), limit, *flat],
            )

    async def forget_answer(self, member: bytes) -> None:
        """Nothing is known of this answer any more."""
        async with self._reaching(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hdel(self.keys.answers, member)
            pipe.zrem(self.keys.answer_ages, member)
            await pipe.execute()

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

    async def give_up(self) -> None:
        """The server does not answer. Who waits for a free connection is told so at once, and
        connections from before are not used again."""
        self._outages += 1
        await self._drop_idle()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._redis.aclose()

    def _opening(self, opening: Opening, *, replay: bool = False) -> _Arguments:
        return self._call_keys(opening.key), [
            rows.member(opening.key),
            encode(opening.key.program),
            encode(opening.call),
            encode(opening.thread),
            encode(opening.candidate),
            int(opening.sticky),
            number(opening.now_s),
            int(opening.ephemeral),
            rows.lease(opening.key, opening.call),
            int(replay),
            number(opening.now_s - opening.sooner_s),
            encode(opening.parent),
            self._per_tenant,
            *map(encode, opening.eligible),
        ]

    def _closing(self, closing: Closing) -> _Arguments:
        return self._call_keys(closing.key)[:7], [
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
            rows.lease(closing.key, closing.call),
            number(closing.now_s - closing.sooner_s),
        ]

    def _starting(self, event: Started, *, replay: bool = False) -> _Arguments:
        key, now = event.key, number(event.now_s)
        return self._index_keys(key), [
            rows.member(key), encode(key.program), now, event.id, int(replay), self._per_tenant,
        ]  # fmt: skip

    def _ending(self, event: Ended, *, replay: bool = False, before: str = "") -> _Arguments:
        key, now = event.key, number(event.now_s)
        return self._index_keys(key), [
            rows.member(key), encode(key.program), event.id, int(replay), now, before,
        ]  # fmt: skip

    def _call_keys(self, key: ProgramKey) -> list[Any]:
        keys = self.keys
        return [
            keys.row(key), keys.in_flight, keys.activity, keys.names(key.tenant),
            keys.idle(key.tenant), keys.leases, keys.totals, keys.marks,
        ]  # fmt: skip

    def _index_keys(self, key: ProgramKey) -> list[Any]:
        keys = self.keys
        return [
            keys.row(key), keys.activity, keys.names(key.tenant), keys.idle(key.tenant),
            keys.totals, keys.marks,
        ]  # fmt: skip

    async def _drop_idle(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            await self._redis.connection_pool.disconnect(inuse_connections=False)

    async def _take_turn(self) -> None:
        if not self._turn.locked():  # Then it does not wait, and needs no timer.
            await self._turn.acquire()
            return
        outages = self._outages
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._turn.acquire()
        except TimeoutError:
            raise TableUnavailable(
                f"the process table at {self._where} is too slow: no free connection"
            ) from None
        if self._outages != outages:
            self._turn.release()
            raise TableUnavailable(f"the process table at {self._where} does not answer")

    @asynccontextmanager
    async def _reaching(self) -> AsyncIterator[None]:
        await self._take_turn()
        try:
            yield
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            # Those that lie idle are likely to be as dead as this one.
            await self._drop_idle()
            raise TableUnavailable(
                f"the process table at {self._where} cannot be reached: {error}"
            ) from error
        except RedisError as error:
            raise TableUnavailable(f"the process table at {self._where}: {error}") from error
        finally:
            self._turn.release()


def _refused(error: Exception) -> bool:
    """Whether a script says that its call is open, or was replayed, already."""
    return isinstance(error, ResponseError) and "WEFT" in str(error)


def _without_credentials(url: str) -> str:
    # A password may also be in the query.
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
