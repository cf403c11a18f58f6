"""Alpha in one gateway, and shared on a real Redis server."""

from __future__ import annotations

from typing import Any

import pytest
from support.redis_server import RedisServer
from support.redis_table import run
from weft_gateway.programs.alpha import SharedAlpha
from weft_gateway.programs.table import TableUnavailable


@pytest.mark.anyio
async def test_one_gateway_keeps_its_alpha() -> None:
    used: list[float] = []
    alpha = SharedAlpha(used.append)
    await alpha.sync()
    assert (alpha.alpha, used) == (0.0, [])
    await alpha.change(0.7)
    await alpha.sync()
    assert (alpha.alpha, used) == (0.7, [0.7])


def test_gateways_on_one_redis_agree_also_after_it_has_lost_the_value(
    redis_server: RedisServer,
) -> None:
    async def steps(table: Any) -> None:
        link, used = table.link, [[], []]
        one, two = (SharedAlpha(used[at].append, link) for at in range(2))
        await one.change(0.3)
        await two.sync()
        assert used == [[0.3], [0.3]]
        await link.redis.delete(link.keys.alpha)
        await two.sync()
        late = SharedAlpha(used[1].append, link)
        await late.sync()
        assert (two.alpha, late.alpha) == (0.3, 0.3)
        for wrong in ("none", "7"):
            await link.redis.set(link.keys.alpha, wrong)
            await two.sync()
        assert two.alpha == 0.3
        link.away = True
        with pytest.raises(TableUnavailable):
            await two.change(0.5)
        link.away = False
        assert two.alpha == 0.3

    run(redis_server, steps)
