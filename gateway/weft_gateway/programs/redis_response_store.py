"""Stored answers on Redis, shared by all gateways. This process's memory is the cache."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, cast

import msgspec

from weft_gateway.model import ProgramKey
from weft_gateway.programs import rows
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.response_store import (
    DEFAULT_KEEP_S,
    DEFAULT_LIMIT,
    PRIVATE,
    ResponseStore,
    StoredResponse,
    is_owned,
)
from weft_gateway.programs.table import TableUnavailable

# Answers, and about how many bytes of them, that one script reads or writes.
_AT_ONCE: Final = 256
_BYTES_AT_ONCE: Final = 4_194_304
# Larger answers stay in this process: writing one would stop Redis for other calls.
_MOST_SHARED: Final = 8_388_608
# Means that the answer is renewed, and not written.
_RENEWED: Final = b""


class RedisResponseStore(ResponseStore):
    """See ResponseStore. Answers remembered while Redis is away are written by a later `remember`
    or `flush`.
    """

    def __init__(
        self, link: RedisLink, keep_s: float = DEFAULT_KEEP_S, limit: int = DEFAULT_LIMIT
    ) -> None:
        """limit: bytes in this process, and about as many on Redis, with the same eviction."""
        super().__init__(limit, keep_s)
        self._link = link
        self._write_answers, self._read_answers, self._forget_answer = (
            link.script("answers_common", name)
            for name in ("answers", "answers_read", "answers_forget")
        )
        self._limit = limit
        # By tenant and name: whether to write the answer, or only to renew it.
        self._unwritten: dict[tuple[str, str], bool] = {}

    async def remember(self, key: ProgramKey, answers: Mapping[str, StoredResponse | None]) -> None:
        """See ResponseStore. Never raises, so an answer does not wait for its metadata. If another
        tenant owns an answer with this id, according to this or another gateway, nothing is
        remembered.
        """
        for name, answer in answers.items():
            self.record(key, name, answer)
            # None if another tenant owns it, or if the memory is too small.
            kept = self._answers.get((key.tenant, name))
            if kept is not None and kept.size <= _MOST_SHARED and not name.startswith(PRIVATE):
                self._unwritten[key.tenant, name] = True
        with contextlib.suppress(TableUnavailable):
            # The others, which an outage left, do not delay this answer.
            await self._flush((key.tenant, name) for name in answers)

    async def find(self, tenant: str, name: str) -> StoredResponse | None:
        """See ResponseStore."""
        if is_owned(name) and self._known(tenant, name) is not None:
            await self._drop_deleted(tenant, [name])
        known = self._known(tenant, name)
        return known or (await self._read(tenant, name, 0)).get(name)

    async def chain(self, tenant: str, name: str, most_bytes: int) -> dict[str, StoredResponse]:
        """See ResponseStore."""
        found = await super().chain(tenant, name, most_bytes)
        await self._drop_deleted(tenant, found)
        for name in found:
            if not self.known(tenant, name):
                raise KeyError(name)
        return found

    async def forget(self, tenant: str, name: str) -> None:
        """See ResponseStore. Raises TableUnavailable if other gateways may still have it."""
        await super().forget(tenant, name)
        if not name.startswith(PRIVATE):
            async with self._link.reaching():
                member = rows.member(ProgramKey(tenant, name))
                await self._forget_answer(self._link.keys.of_answers, [member])

    async def flush(self) -> None:
        """See ResponseStore."""
        while self._unwritten:
            await self._flush(tuple(islice(self._unwritten, _AT_ONCE)))

    async def _flush(self, names: Iterable[tuple[str, str]]) -> None:
        """Write those of the names that are not written, up to a number of bytes at once."""
        left = [name for name in names if name in self._unwritten]
        while left:
            written: dict[tuple[str, str], bytes] = {}
            size = 0
            while left and size <= _BYTES_AT_ONCE:
                if (whole := self._unwritten.get(name := left.pop())) is not None:
                    written[name] = _packed(self._answers[name]) if whole else _RENEWED
                    size += len(written[name])
            states = {name: self._answers.get(name) for name in written}
            for member in await self._write(written):
                self._drop(*rows.key_of(member))
            for name, state in states.items():
                # A later change of the answer is written by the next flush.
                if self._answers.get(name) is state or name not in self._answers:
                    self._unwritten.pop(name, None)

    async def _drop_deleted(self, tenant: str, names: Iterable[str]) -> None:
        """Drop answers that another gateway has deleted. Without Redis, all of them stay."""
        shared = [
            name
            for name in names
            if (answer := self._answers.get((tenant, name))) is not None
            and answer.size <= _MOST_SHARED
            and not name.startswith(PRIVATE)
            and not self._unwritten.get((tenant, name))
        ]
        members: list[Any] = [rows.member(ProgramKey(tenant, name)) for name in shared]
        with contextlib.suppress(TableUnavailable):
            async with self._link.reaching():
                ages = self._link.keys.of_answers[1]
                scores = await self._link.redis.zmscore(ages, members) if members else []
            for name, score in zip(shared, scores, strict=True):
                if score is None:
                    self._drop(tenant, name)

    def _gone(self, tenant: str, name: str) -> None:
        self._unwritten.pop((tenant, name), None)

    def _drop(self, tenant: str, name: str) -> None:
        super()._drop(tenant, name)
        self._unwritten.pop((tenant, name), None)

    def _renewed(self, tenant: str, name: str) -> None:
        if not name.startswith(PRIVATE):
            self._unwritten.setdefault((tenant, name), False)

    async def _read(self, tenant: str, name: str, most_bytes: int) -> Mapping[str, StoredResponse]:
        if name.startswith(PRIVATE):
            return {}
        found: dict[str, StoredResponse] = {}
        about: list[Any] = [
            rows.number(self._clock()), rows.number(self._keep_s), rows.encode(tenant),
            rows.encode(name), _AT_ONCE, min(most_bytes, _BYTES_AT_ONCE),
        ]  # fmt: skip
        async with self._link.reaching():
            reply = await self._read_answers(self._link.keys.of_answers, about)
        for packed in cast("list[bytes]", reply):
            try:
                answer = msgspec.msgpack.decode(packed.partition(b"\n")[2], type=StoredResponse)
            except msgspec.DecodeError:
                # Another version wrote it.
                break
            found[name] = answer = replace(answer, used_s=self._clock())
            owner = self._owners.get(name, tenant)
            if owner != tenant:
                self._drop(owner, name)
            self._keep(tenant, name, answer)
            name = answer.previous
        return found

    async def _write(self, answers: Mapping[tuple[str, str], bytes]) -> list[bytes]:
        """Return the answers that were not stored because another tenant owns the same id."""
        head: list[Any] = [
            rows.number(self._clock()), rows.number(self._keep_s), self._limit,
        ]  # fmt: skip
        flat = [
            part
            for name, packed in answers.items()
            for part in (rows.member(ProgramKey(*name)), packed)
        ]
        async with self._link.reaching():
            reply = await self._write_answers(self._link.keys.of_answers, [*head, *flat])
        return cast("list[bytes]", reply)


def _packed(answer: StoredResponse) -> bytes:
    """Return the answer for Redis: a line that scripts read, and the rest."""
    return b"%b\n%b" % (rows.encode(answer.previous), msgspec.msgpack.encode(answer))
