"""The alpha of the balancer `work` that an administrator has set."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft_gateway.policies.route.registry import ALPHA

if TYPE_CHECKING:
    from weft_gateway.programs.redis_link import RedisLink

log = logging.getLogger(__name__)


class AlphaStore:
    """Keeps the value of one gateway, whose process table is in memory, until it stops.

    The methods raise TableUnavailable without a change if the store is away.
    """

    def __init__(self) -> None:
        self._alpha: float | None = None

    async def read(self) -> float | None:
        """Return the last value, None before the first one."""
        return self._alpha

    async def write(self, alpha: float) -> None:
        """Replace the value."""
        self._alpha = alpha


class RedisAlpha(AlphaStore):
    """See AlphaStore. All gateways of one Redis share the value. If Redis has lost it, the first
    gateway that notices writes it back.
    """

    def __init__(self, link: RedisLink) -> None:
        super().__init__()
        self._link = link

    async def read(self) -> float | None:
        """See AlphaStore."""
        redis, key = self._link.redis, self._link.keys.alpha
        async with self._link.reaching():
            found: Any = await redis.get(key)
            if found is None and self._alpha is not None:
                await redis.set(key, repr(self._alpha), nx=True)
                found = await redis.get(key)
        try:
            alpha = float(found) if found is not None else None
        except ValueError:
            alpha = None
        if alpha is not None and 0 <= alpha <= 1:
            self._alpha = alpha
        return self._alpha

    async def write(self, alpha: float) -> None:
        """See AlphaStore."""
        async with self._link.reaching():
            await self._link.redis.set(self._link.keys.alpha, repr(alpha))


class SharedAlpha:
    """Keeps this gateway's alpha equal to that of the store. alpha: in use. apply: uses another
    value.
    """

    def __init__(self, store: AlphaStore, apply: Callable[[float], None]) -> None:
        self.alpha = ALPHA
        self._store = store
        self._apply = apply

    async def sync(self) -> None:
        """Apply a change by another gateway. Raises TableUnavailable."""
        found = await self._store.read()
        if found is not None and found != self.alpha:
            self.alpha = found
            self._apply(found)
            log.info("alpha of the balancer is %g", found)

    async def change(self, alpha: float) -> None:
        """Change alpha in all gateways. Raises TableUnavailable."""
        await self._store.write(alpha)
        await self.sync()
