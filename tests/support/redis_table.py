"""Process tables of several gateways on one real Redis server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from support.redis_server import RedisServer
from weft_gateway.programs.redis import RedisTable

_prefixes = (f"redis{number}" for number in count())


def run(
    server: RedisServer,
    steps: Callable[..., Coroutine[Any, Any, None]],
    gateways: int = 1,
    **options: float,
) -> None:
    """Run the steps with `gateways` tables on one new store, and check its integrity at the end."""

    async def main() -> None:
        prefix = next(_prefixes)
        # Long timeouts, so that a busy machine does not look like a server that is down.
        patient = {"timeout_s": 20.0} | options
        tables = [RedisTable(server.url, prefix, **patient) for _ in range(gateways)]
        try:
            await steps(*tables)
            assert list(await tables[0].check()) == []
        finally:
            for table in tables:
                await table.aclose()

    asyncio.run(main())
