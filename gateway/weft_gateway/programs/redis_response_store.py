"""Stored answers on Redis, shared by all gateways. This process's memory is the cache."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from weft_gateway.model import ProgramKey
from weft_gateway.programs import rows
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.response_store import DEFAULT_KEEP_S, ResponseStore, StoredResponse
from weft_gateway.programs.table import TableUnavailable

_SHARED_LIMIT: Final = 262_144


class RedisResponseStore(ResponseStore):
    """See ResponseStore. Answers remembered while Redis is away are written by a later `remember`
    or `flush`.
    """

    def __init__(
        self, link: RedisLink, keep_s: float = DEFAULT_KEEP_S, limit: int = _SHARED_LIMIT
    ) -> None:
        """limit: answers on Redis of all tenants, with the same eviction as in memory."""
        super().__init__(keep_s=keep_s)
        self._link = link
        self._store_answers, self._forget_answer = (
            link.script("answers_common", name) for name in ("answers", "answers_forget")
        )
        self._shared_limit = limit
        # At most the capacity of the memory cache.
        self._unwritten: dict[bytes, bytes] = {}

    async def remember(
        self, key: ProgramKey, response_id: str, replica: str, thread: str = ""
    ) -> None:
        """See ResponseStore. Never raises, so an answer does not wait for its metadata. If another
        tenant owns an answer with this id, according to this or another gateway, nothing is
        remembered.
        """
        answer = self.record(key, response_id, replica, thread)
        if answer is not None:
            self._unwritten[rows.member(ProgramKey(key.tenant, response_id))] = msgspec.json.encode(
                answer
            )
            with contextlib.suppress(TableUnavailable):
                await self.flush()

    async def find(self, tenant: str, response_id: str) -> StoredResponse | None:
        """See ResponseStore."""
        known = self._known(tenant, response_id)
        if known is not None:
            return known
        packed = await self._read(rows.member(ProgramKey(tenant, response_id)))
        if packed is None:
            return None
        try:
            answer = msgspec.json.decode(packed, type=StoredResponse)
        except msgspec.DecodeError:
            # Another version wrote it.
            return None
        owner = self._owners.get(response_id, tenant)
        if owner != tenant:
            self._drop(owner, response_id)
        self._keep(tenant, response_id, answer)
        return self._known(tenant, response_id)

    async def forget(self, tenant: str, response_id: str) -> None:
        """See ResponseStore. Other gateways may remember it until their entry expires; the replica
        then replies that the answer does not exist.
        """
        await super().forget(tenant, response_id)
        member = rows.member(ProgramKey(tenant, response_id))
        self._unwritten.pop(member, None)
        with contextlib.suppress(TableUnavailable):
            async with self._link.reaching():
                await self._forget_answer(self._link.keys.of_answers, [member])

    async def flush(self) -> None:
        """See ResponseStore."""
        if not self._unwritten:
            return
        written = dict(self._unwritten)
        others = await self._write(written)
        for member, packed in written.items():
            if self._unwritten.get(member) == packed:
                del self._unwritten[member]
        for member in others:
            self._drop(*rows.key_of(member))

    def _gone(self, tenant: str, response_id: str) -> None:
        self._unwritten.pop(rows.member(ProgramKey(tenant, response_id)), None)

    async def _read(self, member: bytes) -> bytes | None:
        link = self._link
        async with link.reaching():
            return cast("bytes | None", await cast(Any, link.redis.hget(link.keys.answers, member)))

    async def _write(self, answers: Mapping[bytes, bytes]) -> list[bytes]:
        """Return the answers that were not stored because another tenant owns the same id."""
        head: list[Any] = [
            rows.number(self._clock()), rows.number(self._keep_s), self._shared_limit,
        ]  # fmt: skip
        flat = [part for pair in answers.items() for part in pair]
        async with self._link.reaching():
            reply = await self._store_answers(self._link.keys.of_answers, [*head, *flat])
        return cast("list[bytes]", reply)
