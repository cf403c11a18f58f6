"""Handles on Redis, shared by all gateways. This process's memory is used while Redis is away.

| key (after the prefix) | type | value |
|---|---|---|
| h:TENANT/HANDLE | hash | the handle's texts |
| hp:TENANT/PROGRAM | sorted set | a program's handles by expiry |
| ht:TENANT | sorted set | a tenant's handles by expiry |
| handles | sorted set | TENANT/HANDLE of all handles by expiry |
| handle_tenants | sorted set | tenants by their number of handles |

The first three keys expire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any, Final, cast

from weft_gateway.model import ProgramKey
from weft_gateway.programs import rows
from weft_gateway.programs.handles import GRACE_S, IN_ALL, PER_TENANT, Fields, MemoryHandles
from weft_gateway.programs.redis_link import RedisLink, twice
from weft_gateway.programs.table import TableUnavailable

# Capacity on Redis, which all gateways share, as a multiple of one gateway's.
SHARED_TIMES: Final = 8
# Maximum handles dropped for one new handle: other handles are added concurrently.
_TRIES: Final = 4
# Reserved name of a handle's expiry among its texts.
_END: Final = "end"


class RedisHandles:
    """See HandleStore. in_all: handles of all tenants on Redis. in_here: handles in this gateway's
    memory.
    """

    def __init__(
        self,
        link: RedisLink,
        per_tenant: int = PER_TENANT,
        in_all: int = SHARED_TIMES * IN_ALL,
        in_here: int = IN_ALL,
    ) -> None:
        self._link = link
        self._per_tenant = per_tenant
        self._in_all = in_all
        self._local = MemoryHandles(per_tenant, min(in_all, in_here))
        # Handles that are not on Redis, or not in their current state.
        self._unwritten: dict[tuple[ProgramKey, str], None] = {}
        self._begin, self._drop = (
            link.script("handles_common", f"handles_{name}") for name in ("begin", "drop")
        )
        self._update = link.script("handles_update")

    def __len__(self) -> int:
        return len(self._local)

    async def begin(
        self, key: ProgramKey, handle: str, fields: Fields, now_s: float, expires_s: float
    ) -> bool:
        """See HandleStore."""
        written = False
        if not self._link.away:
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
        if not self._link.away and (key, handle) not in self._unwritten:
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
            if self._link.away:
                raise TableUnavailable("the handle store is away")
            found = await twice(partial(self._read, tenant, handle))
        except TableUnavailable:
            if known is None:
                raise
            return known
        return found if float(found.pop(_END, 0.0)) > now_s else None

    async def of_program(self, key: ProgramKey, now_s: float) -> Sequence[Fields]:
        """See HandleStore."""
        known = await self._local.of_program(key, now_s)
        if self._link.away or any(owner == key for owner, _ in self._unwritten):
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
        if self._link.away:
            return there
        try:
            dropped = await self._erase(key, handle)
        except TableUnavailable:
            return there
        return dropped or (there and unwritten)

    async def flush(self, now_s: float) -> None:
        """See HandleStore."""
        for key, handle in list(self._unwritten):
            if self._link.away:
                return
            # The handle may change during the write; then it is written again.
            while (known := self._local.known(key.tenant, handle)) is not None:
                fields, expires_s = dict(known[0]), known[1]
                await twice(partial(self._write, key, handle, fields, now_s, expires_s))
                later = self._local.known(key.tenant, handle)
                if later is None:
                    await self.drop(key, handle)
                elif later == (fields, expires_s):
                    break
            self._unwritten.pop((key, handle), None)

    async def _write(
        self, key: ProgramKey, handle: str, fields: Fields, now_s: float, expires_s: float
    ) -> bool:
        arguments: list[Any] = [
            rows.number(now_s),
            rows.number(expires_s),
            ceil(max(0.0, expires_s - now_s) + GRACE_S),
            self._per_tenant,
            self._in_all,
            handle,
            _member(key.tenant, handle),
            rows.encode(key.tenant),
            *(_END, rows.number(expires_s)),
            *_flat(fields),
        ]
        for _ in range(_TRIES):
            async with self._link.reaching():
                done = await self._begin(self._keys(key, handle), arguments)
            if not isinstance(done, bytes):
                return bool(done)
            await self._make_room(rows.decode(done))
        return False

    async def _make_room(self, tenant: str) -> None:
        """Drop the handle of this tenant that expires first."""
        redis = self._link.redis
        async with self._link.reaching():
            members = cast(list[bytes], await redis.zrange(self._tenant(tenant), 0, 0))
            found = [rows.decode(member) for member in members]
            programs = [await cast(Any, redis.hget(self._row(tenant, h), "program")) for h in found]
        for handle, program in zip(found, programs, strict=True):
            key = ProgramKey(tenant, rows.decode(program or b""))
            await self._local.drop(key, handle)
            await self._erase(key, handle)

    async def _erase(self, key: ProgramKey, handle: str) -> bool:
        async with self._link.reaching():
            arguments: list[Any] = [handle, _member(key.tenant, handle)]
            return bool(await self._drop(self._keys(key, handle), arguments))

    def _keys(self, key: ProgramKey, handle: str) -> list[bytes]:
        tenant = key.tenant
        everyone = self._link.keys.base + b"handles"
        row = self._row(tenant, handle)
        return [row, self._of(key), self._tenant(tenant), everyone, self._tenants()]

    def _tenants(self) -> bytes:
        return self._link.keys.base + b"handle_tenants"

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
