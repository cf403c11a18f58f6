"""Two gateways under load while their Redis server hangs, or stops and restarts empty."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from support.redis_server import RedisServer
from support.table import closing, opening
from support.waiting import back, until
from weft_gateway.model import ProgramKey
from weft_gateway.programs.redis import RedisTable
from weft_gateway.programs.resilient import ResilientTable

COSTS = {"r0": 10**12 + 1, "r1": 3}


class Load:
    """Make calls through two gateways without pause, and count them."""

    def __init__(self, *tables: ResilientTable) -> None:
        self.tables = tables
        self.keys = [ProgramKey("t", f"busy{number}") for number in range(20)]
        self.calls = dict.fromkeys(self.keys, 0)
        self.local = 0
        self.stopped = False

    async def worker(self, number: int) -> None:
        while not self.stopped:
            key = self.keys[(number * 7 + self.calls[self.keys[number % 20]]) % 20]
            table = self.tables[number % 2]
            o = opening(key, now=time.time(), replica=f"r{number % 2}", sticky=True, costs=COSTS)
            self.local += (await table.open_call(o)).local
            await asyncio.sleep(0.005)  # The engine runs.
            await table.close_call(closing(o, now=time.time(), service_s=0.5))
            self.calls[key] += 1


@pytest.mark.parametrize("how", ["pause", "kill"])
def test_no_open_call_is_lost_or_counted_twice_under_load(tmp_path: Path, how: str):
    async def main() -> None:
        server = RedisServer(tmp_path)
        tables = [ResilientTable(RedisTable(server.url, timeout_s=1)) for _ in range(2)]
        try:
            for table in tables:
                await table.ping()
            # These calls are open before the outages. Two are closed during them, one stays open.
            kept = [
                opening(ProgramKey("t", f"kept{i}"), now=time.time(), costs=COSTS) for i in range(3)
            ]
            for o in kept:
                await tables[0].open_call(o)
            load = Load(*tables)
            workers = [asyncio.create_task(load.worker(number)) for number in range(48)]
            for _ in range(2):
                done = sum(load.calls.values())
                await until(
                    lambda d=done: sum(load.calls.values()) > d + 300,
                    "too few calls before the outage",
                )
                server.pause() if how == "pause" else server.kill()
                await until(
                    lambda: all(table.local for table in tables), "a gateway is not in local mode"
                )
                done = sum(load.calls.values())
                await until(
                    lambda d=done: sum(load.calls.values()) > d + 300,
                    "too few calls during the outage",
                )
                await tables[0].close_call(closing(kept.pop(), service_s=9.0))
                server.resume() if how == "pause" else server.start()
                await back(*tables)
            load.stopped = True
            await asyncio.gather(*workers)
            # A stall of the machine can send a gateway into local mode again.
            await back(*tables)
            assert load.local > 0
            assert list(await tables[0].check()) == []
            await tables[1].count()
            assert tables[1].work() == {"r0": COSTS["r0"]}
            for key, calls in load.calls.items():
                program = await tables[1].get(key)
                # Calls that began and ended during an outage are missing, and so are those in lost
                # rows.
                if program is not None:
                    assert program.calls == program.calls_closed <= calls, key
                    assert program.service_s == pytest.approx(0.5 * program.calls)
            assert await tables[0].count() == {kept[0].candidate: 1}
            for number, service_s in enumerate((0.0, 9.0, 9.0)):
                program = await tables[1].get(ProgramKey("t", f"kept{number}"))
                if program is None:
                    assert how == "kill"
                    assert number > 0
                    continue
                assert program.service_s == service_s
                assert len(program.threads) == (number == 0)
        finally:
            for table in tables:
                await table.aclose()
            server.kill()

    asyncio.run(main())
