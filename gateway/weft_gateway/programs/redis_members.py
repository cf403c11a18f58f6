"""The changes of the replicas at run time on Redis, shared by all gateways."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from weft_gateway.model.member import Member, Members
from weft_gateway.programs.members import MemberStore
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.rows import decode, encode
from weft_gateway.programs.table import TableUnavailable

log = logging.getLogger(__name__)

_ABSENT: Final = ""


class RedisMembers(MemberStore):
    """See MemberStore. A gateway that has not read for `lease_s` seconds is not expected to confirm
    changes. If Redis has lost its data, the first gateway that notices writes back the records.
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
        version, now, behind, busy, *flat = reply
        if decode(version) == _ABSENT and self._version != _ABSENT:
            return await self._restore(background)
        if decode(version) != self._version:
            self._records = _records(dict(zip(flat[::2], flat[1::2], strict=True)))
            self._version = decode(version)
        names = frozenset(decode(busy).split())
        return Members(self._version, dict(self._records), float(now), int(behind), names)

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
