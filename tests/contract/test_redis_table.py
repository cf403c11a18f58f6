"""What only a table on Redis can show: several gateways, and a server that goes away."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from support.redis_server import RedisServer
from test_process_table import closing, opening

from gateway.model import ProgramKey
from gateway.programs.redis import RedisTable
from gateway.programs.table import TableUnavailable


def test_two_gateways_agree_on_every_home_and_count(redis_server):
    async def main() -> None:
        tables = [RedisTable(redis_server.url, "two"), RedisTable(redis_server.url, "two")]
        homes: dict[ProgramKey, set[str]] = {}

        async def one(number: int) -> None:
            key = ProgramKey("t", f"p{number % 10}")
            table = tables[number % 2]
            o = opening(key, replica=f"r{number % 2}", sticky=True)
            homes.setdefault(key, set()).add((await table.open_call(o)).replica)
            await tables[(number // 2) % 2].close_call(closing(o, service_s=0.5))

        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(one, number)
        assert all(len(home) == 1 for home in homes.values())
        assert list(await tables[0].check()) == []
        assert sum(p.service_s for p in await tables[1].programs("t", 20)) == 100.0
        for table in tables:
            await table.aclose()

    anyio.run(main)


def test_a_server_that_is_gone_is_named_and_its_return_is_noticed(tmp_path: Path):
    server = RedisServer(tmp_path)

    async def main() -> None:
        table = RedisTable(server.url.replace("//", "//user:secret@"), "gone")
        plain = RedisTable(server.url, "gone")
        await plain.ping()
        server.kill()
        with pytest.raises(TableUnavailable, match=str(server.port)) as raised:
            await table.open_call(opening())
        assert "secret" not in str(raised.value)
        with pytest.raises(TableUnavailable):
            await plain.open_call(opening())
        server.start()
        assert (await plain.open_call(opening())).created
        await table.aclose()
        await plain.aclose()

    try:
        anyio.run(main)
    finally:
        server.kill()
