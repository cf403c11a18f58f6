"""The tuned values and the tuner's lock on Redis, shared by all gateways."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.rows import decode
from weft_gateway.programs.table import TableUnavailable
from weft_gateway.programs.tuning import TuningStore

log = logging.getLogger(__name__)

_ABSENT: Final = ""


class RedisTuning(TuningStore):
    """See TuningStore. The lock is released by itself `lease_s` seconds after the last `lead`. If
    Redis has lost the values, the first gateway that notices writes them back.
    """

    def __init__(self, link: RedisLink, lease_s: float) -> None:
        super().__init__()
        self._link = link
        self._lease_s = lease_s
        self._own = os.urandom(6).hex()
        self._version = _ABSENT
        self._packed = b""
        self._lead_script = link.script("tuning_lead")
        self._write_script = link.script("tuning_write")

    async def read(self) -> tuple[str, Mapping[str, float]]:
        """See TuningStore."""
        version, packed = await self._get()
        if version == _ABSENT and self._version != _ABSENT:
            log.warning("Redis has lost the tuned values: writing them back")
            # Another gateway may be faster.
            await self._put(self._packed, _ABSENT)
            version, packed = await self._get()
        self._version, self._packed = version, packed
        try:
            return version, msgspec.json.decode(packed or b"{}", type=dict[str, float])
        except msgspec.MsgspecError as error:
            log.warning("the tuned values on Redis are ignored: %s", error)
            return version, {}

    async def write(self, values: Mapping[str, float], version: str) -> bool:
        """See TuningStore."""
        return await self._put(msgspec.json.encode(dict(values)), version)

    async def lead(self) -> bool:
        """See TuningStore."""
        arguments: list[Any] = [self._own, int(self._lease_s * 1000)]
        async with self._link.reaching():
            return bool(await self._lead_script([self._link.keys.tuner], arguments))

    async def resign(self) -> None:
        """See TuningStore."""
        with suppress(TableUnavailable):
            async with self._link.reaching():
                await self._lead_script([self._link.keys.tuner], [self._own, 0])

    async def _get(self) -> tuple[str, bytes]:
        """Return the version and the encoded values."""
        async with self._link.reaching():
            found: Any = await self._link.redis.get(self._link.keys.tuning)
        packed: bytes = found or b""
        version, _, values = packed.partition(b"\n")
        return decode(version), values

    async def _put(self, packed: bytes, version: str) -> bool:
        arguments: list[Any] = [version, os.urandom(8).hex(), packed]
        async with self._link.reaching():
            return bool(await self._write_script([self._link.keys.tuning], arguments))
