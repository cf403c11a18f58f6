"""How many gateways share a process table on Redis."""

from __future__ import annotations

import os
from contextlib import suppress

from weft_gateway.programs.gateways import Gateways
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.table import TableUnavailable


class RedisGateways(Gateways):
    """See Gateways. A gateway that has not refreshed for `lease_s` seconds is not present. While
    Redis is away, the last count stays.
    """

    def __init__(self, link: RedisLink, lease_s: float) -> None:
        super().__init__()
        self._link = link
        self._lease_s = lease_s
        self._own = os.urandom(6).hex()
        self._script = link.script("common", "gateways")

    async def refresh(self) -> None:
        """See Gateways."""
        self.count = max(1, await self._present(self._lease_s))

    async def leave(self) -> None:
        """See Gateways."""
        with suppress(TableUnavailable):
            await self._present(0.0)

    async def _present(self, lease_s: float) -> int:
        async with self._link.reaching():
            return int(await self._script([self._link.keys.gateways], [self._own, lease_s]))
