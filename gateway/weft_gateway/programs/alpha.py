"""The alpha of the balancer `work` that an administrator has set."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft_gateway.policies.route.registry import ALPHA

if TYPE_CHECKING:
    from weft_gateway.programs.redis_link import RedisLink

log = logging.getLogger(__name__)


class SharedAlpha:
    """Keeps alpha equal in all gateways of one Redis. Without one, this process keeps the value
    until it stops. If Redis has lost it, the first gateway that notices writes it back.

    alpha: in use. apply: uses another value. link: the process table's Redis client, if it has one.
    The methods raise TableUnavailable without a change if Redis is away.
    """

    def __init__(self, apply: Callable[[float], None], link: RedisLink | None = None) -> None:
        self.alpha = ALPHA
        self._apply = apply
        self._link = link

    async def sync(self) -> None:
        """Apply a change by another gateway."""
        if self._link is None:
            return
        redis, key = self._link.redis, self._link.keys.alpha
        async with self._link.reaching():
            found: Any = await redis.get(key)
            if found is None and self.alpha != ALPHA:
                await redis.set(key, repr(self.alpha), nx=True)
                found = await redis.get(key)
        try:
            alpha = float(found or b"")
        except ValueError:
            return
        if 0 <= alpha <= 1:
            self._use(alpha)

    async def change(self, alpha: float) -> None:
        """Change alpha in all gateways."""
        if self._link is not None:
            async with self._link.reaching():
                await self._link.redis.set(self._link.keys.alpha, repr(alpha))
        self._use(alpha)

    def _use(self, alpha: float) -> None:
        if alpha != self.alpha:
            self.alpha = alpha
            self._apply(alpha)
            log.info("alpha of the balancer is %g", alpha)
