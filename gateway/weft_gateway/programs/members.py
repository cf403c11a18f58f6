"""Stores the changes of the replicas at run time: in this process's memory, or on Redis."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft_gateway.model.member import Member, Members
from weft_gateway.programs.rows import decode, encode
from weft_gateway.programs.table import TableUnavailable

if TYPE_CHECKING:
    from weft_gateway.programs.redis_link import RedisLink

log = logging.getLogger(__name__)

_ABSENT: Final = ""


class MemberStore:
    """The changes of one gateway, whose process table is in memory. They are lost when it stops.

    All methods raise TableUnavailable without a change if the store is away. If the reply of the
    store is lost, a change may be stored; making it again is harmless.
    """

    def __init__(self) -> None:
        self._records: dict[str, Member] = {}
        self._changes = 0

    async def read(self, background: frozenset[str]) -> Members:
        """Return the members. Confirms the version that the previous call returned: its caller has
        applied it. background: replicas at which this gateway knows a response in the background.
        """
        return Members(str(self._changes), dict(self._records), time(), background=background)

    async def write(self, changes: Mapping[str, Member | None], version: str) -> bool:
        """Replace or delete (None) records, if `version` is still the latest. Returns whether it
        was.
        """
        if version != str(self._changes):
            return False
        for name, record in changes.items():
            if record is None:
                self._records.pop(name, None)
            else:
                self._records[name] = record
        self._changes += 1
        return True

    async def leave(self) -> None:
        """Stop counting as a gateway, which must confirm changes."""


class RedisMembers(MemberStore):
    """See MemberStore. All gateways of one Redis share the changes. A gateway that has not read for
    `lease_s` seconds does not count, and is not expected to confirm changes. If Redis has lost its
    data, the first gateway that notices writes back the records.
    """

    def __init__(self, link: RedisLink, lease_s: float) -> None:
        super().__init__()
        self._link = link
        self._lease_s = lease_s
        self._own = os.urandom(6).hex()
        self._version = _ABSENT
        self._read_script = link.script("common", "members")
        self._write_script = link.script("members_write")

    async def read(self, background: frozenset[str]) -> Members:
        """See MemberStore."""
        keys = self._link.keys
        arguments: list[Any] = [self._own, self._lease_s, self._version, *sorted(background)]
        async with self._link.reaching():
            reply = await self._read_script(keys.of_members, arguments)
        version, now, gateways, behind, busy, *flat = reply
        if decode(version) == _ABSENT and self._version != _ABSENT:
            return await self._restore(background)
        if decode(version) != self._version:
            self._records = _records(dict(zip(flat[::2], flat[1::2], strict=True)))
            self._version = decode(version)
        names = frozenset(decode(busy).split())
        records = dict(self._records)
        return Members(self._version, records, float(now), int(gateways), int(behind), names)

    async def write(self, changes: Mapping[str, Member | None], version: str) -> bool:
        """See MemberStore."""
        flat: list[bytes] = []
        for name, record in changes.items():
            flat += [encode(name), b"" if record is None else msgspec.json.encode(record)]
        arguments: list[Any] = [version, os.urandom(8).hex(), *flat]
        async with self._link.reaching():
            return bool(await self._write_script(self._link.keys.of_members[:2], arguments))

    async def leave(self) -> None:
        """See MemberStore."""
        with suppress(TableUnavailable):
            async with self._link.reaching():
                await self._read_script(self._link.keys.of_members, [self._own, 0, ""])

    async def _restore(self, background: frozenset[str]) -> Members:
        """Write back the records after Redis has lost them; another gateway may be faster."""
        log.warning("Redis has lost the members: writing %d records back", len(self._records))
        await self.write(self._records, _ABSENT)
        self._version = _ABSENT
        return await self.read(background)


def _records(stored: Mapping[bytes, bytes]) -> dict[str, Member]:
    """Parse the stored records. One that this release cannot read is ignored."""
    found = {}
    for name, packed in stored.items():
        try:
            record = msgspec.json.decode(packed, type=Member)
        except msgspec.DecodeError as error:
            log.warning("a record of member %r is ignored: %s", decode(name), error)
        else:
            found[record.name] = record
    return found
