"""Handles on Redis, so that every gateway knows them; this process's memory while it is away.

| key (after the prefix) | type | holds |
|---|---|---|
| h:TENANT/HANDLE | hash | the handle's texts |
| hp:TENANT/PROGRAM | sorted set | a program's handles by their end |
| ht:TENANT | sorted set | a tenant's handles by their end |
| handles | sorted set | TENANT/HANDLE of all by their end |

The first three expire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any, Final, cast

from gateway.model import ProgramKey
from gateway.programs import rows
from gateway.programs.handles import GRACE_S, IN_ALL, PER_TENANT, Fields, MemoryHandles
from gateway.programs.redis_link import RedisLink, twice
from gateway.programs.table import TableUnavailable

_SHARED_LIMIT: Final = 65_536
# The name, which nobody else gives, of a handle's end among its texts.
_END: Final = "end"


class RedisHandles:
    """See HandleStore. away: whether Redis is known not to answer, so that nobody waits for it.
    in_all: handles of all tenants on Redis; a gateway by itself knows fewer."""

    def __init__(
        self,
        link: RedisLink,
        away: Callable[[], bool],
        per_tenant: int = PER_TENANT,
        in_all: int = _SHARED_LIMIT,
    ) -> None:
        self._link = link
        self._away = away
        self._per_tenant = per_tenant
        self._in_all = in_all
        self._local = MemoryHandles(per_tenant, min(in_all, IN_ALL))
        # What Redis does not know, or not as it is now.
        self._unwritten: dict[tuple[ProgramKey, str], None] = {}
        self._begin, self._update = (link.script(f"handles_{name}") for name in ("begin", "update"))

    def __len__(self) -> int:
        return len(self._local)

    async def begin(
        self, key: ProgramKey, handle: str, fields: Fields, now_s: float, expires_s: float
    ) -> bool:
        """See HandleStore."""
        written = False
        if not self._away():
            try:
                written = await twice(partial(self._write, key, handle, fields, now_s, expires_s))
                if not written:
                    return False
            except TableUnavailable:
                pass
        here = await self._local.begin(key, handle, fields, now_s, expires_s)
        if here and not written:
            self._unwritten[key, handle] = None
        return here or written

    async def update(self, key: ProgramKey, handle: str, fields: Fields) -> bool:
        """See HandleStore."""
        here = await self._local.update(key, handle, fields)
        if not self._away() and (key, handle) not in self._unwritten:
            try:
                async with self._link.reaching():
                    return bool(await self._update([self._row(key.tenant, handle)], _flat(fields)))
            except TableUnavailable:
                pass
        if here:
            self._unwritten[key, handle] = None
        return here

    async def find(self, tenant: str, handle: str, now_s: float) -> Fields | None:
        """See HandleStore."""
        known = await self._local.find(tenant, handle, now_s)
        unwritten = any((key.tenant, name) == (tenant, handle) for key, name in self._unwritten)
        if unwritten:
            return known
        try:
            if self._away():
                raise TableUnavailable("the store of handles is away")
            found = await twice(partial(self._read, tenant, handle))
        except TableUnavailable:
            if known is None:
                raise
            return known
        return found if float(found.pop(_END, 0.0)) > now_s else None

    async def of_program(self, key: ProgramKey, now_s: float) -> Sequence[Fields]:
        """See HandleStore."""
        known = await self._local.of_program(key, now_s)
        if self._away() or any(owner == key for owner, _ in self._unwritten):
            return known
        redis, later = self._link.redis, f"({rows.number(now_s)}"
        try:
            async with self._link.reaching(), redis.pipeline(transaction=False) as pipe:
                handles = await redis.zrangebyscore(self._of(key), later, "+inf")
                for handle in cast(list[bytes], handles):
                    pipe.hgetall(self._row(key.tenant, rows.decode(handle)))
                found = await pipe.execute()
        except TableUnavailable:
            return known
        return [_fields(row) for row in found if row]

    async def drop(self, key: ProgramKey, handle: str) -> bool:
        """See HandleStore."""
        there = await self._local.drop(key, handle)
        unwritten = self._unwritten.pop((key, handle), self) is not self
        if self._away():
            return there
        keys = self._link.keys
        try:
            async with self._link.reaching(), self._link.redis.pipeline(transaction=True) as pipe:
                pipe.delete(self._row(key.tenant, handle))
                pipe.zrem(self._of(key), handle)
                pipe.zrem(self._tenant(key.tenant), handle)
                pipe.zrem(keys.base + b"handles", _member(key.tenant, handle))
                dropped, *_ = await pipe.execute()
        except TableUnavailable:
            return there
        return bool(dropped) or (there and unwritten)

    async def flush(self, now_s: float) -> None:
        """See HandleStore."""
        for key, handle in list(self._unwritten):
            if self._away():
                return
            # It may change while it is written; then it is not written yet.
            while (known := self._local.known(key.tenant, handle)) is not None:
                fields, expires_s = dict(known[0]), known[1]
                await twice(partial(self._write, key, handle, fields, now_s, expires_s))
                later = self._local.known(key.tenant, handle)
                if later is None:
                    await self.drop(key, handle)
                elif later == (fields, expires_s):
                    break
            self._unwritten.pop((key, handle), None)

    async def aclose(self) -> None:
        """See HandleStore."""
        await self._link.aclose()

    async def _write(
        self, key: ProgramKey, handle: str, fields: Fields, now_s: float, expires_s: float
    ) -> bool:
        keys = self._link.keys
        names = [
            self._row(key.tenant, handle),
            self._of(key),
            self._tenant(key.tenant),
            keys.base + b"handles",
        ]
        arguments: list[Any] = [
            rows.number(now_s),
            rows.number(expires_s),
            ceil(max(0.0, expires_s - now_s) + GRACE_S),
            self._per_tenant,
            self._in_all,
            handle,
            _member(key.tenant, handle),
            *(_END, rows.number(expires_s)),
            *_flat(fields),
        ]
        async with self._link.reaching():
            return bool(await self._begin(names, arguments))

    async def _read(self, tenant: str, handle: str) -> dict[str, str]:
        async with self._link.reaching():
            found = await cast(Any, self._link.redis.hgetall(self._row(tenant, handle)))
        return {rows.decode(name): rows.decode(text) for name, text in found.items()}

    def _row(self, tenant: str, handle: str) -> bytes:
        return self._link.keys.base + b"h:" + _member(tenant, handle)

    def _of(self, key: ProgramKey) -> bytes:
        return self._link.keys.base + b"hp:" + rows.member(key)

    def _tenant(self, tenant: str) -> bytes:
        return self._link.keys.base + b"ht:" + rows.encode(tenant)


def _member(tenant: str, handle: str) -> bytes:
    return rows.member(ProgramKey(tenant, handle))


def _flat(fields: Fields) -> list[Any]:
    return [rows.encode(part) for pair in fields.items() for part in pair]


def _fields(row: Mapping[bytes, bytes]) -> dict[str, str]:
    found = {rows.decode(name): rows.decode(text) for name, text in row.items()}
    found.pop(_END, None)
    return found
