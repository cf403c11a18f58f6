"""The usage of each day in the process table: exact over gateways, repetitions and outages."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest
from support.redis_proxy import Line, RedisProxy
from support.redis_table import run
from support.table import KEYS, closing, opening, scenario
from support.waiting import back
from weft_gateway.model import Outcome, ProgramKey
from weft_gateway.model.usage import Payer, Used
from weft_gateway.programs import ledger
from weft_gateway.programs.redis import RedisTable
from weft_gateway.programs.resilient import ResilientTable

NOON = 1_795_348_800.0  # 2026-11-22
TODAY, TOMORROW = "2026-11-22", "2026-11-23"


def payer(program: str = "p", tenant: str = "t", agent: str = "codex") -> Payer:
    return Payer(tenant, agent, "tiny", program)


async def call(table, who: Payer, now: float = NOON, **used) -> None:
    o = opening(ProgramKey(who.tenant, who.program), now=now)
    await table.open_call(o)
    await table.close_call(closing(o, now=now, payer=who, **used))


def test_each_day_has_the_sums_of_its_payers(make_table):
    async def steps(table):
        who, odd = payer(), payer("a\nb", "u", "")
        used = {"prompt_tokens": 10, "cached_tokens": 4, "output_tokens": 5, "service_s": 0.25,
                "nanodollars": 3}  # fmt: skip
        for _ in range(2):
            await call(table, who, **used)
        await call(table, who, outcome=Outcome.ERROR)
        await call(table, odd, prompt_tokens=1, nanodollars=2**50 + 1)
        await call(table, who, NOON + ledger.DAY_S, output_tokens=1)
        # Not sent, closed again, never opened, and without a payer.
        await call(table, who, outcome=Outcome.REFUSED, **used)
        o = opening(KEYS[0])
        await table.open_call(o)
        await table.close_call(closing(o, now=NOON, **used))
        for again in (o, opening(KEYS[0])):
            await table.close_call(closing(again, now=NOON, payer=who, **used))
        assert await table.usage(TODAY) == {
            who: Used(3, 1, 0, 20, 8, 10, 500_000, 6),
            odd: Used(1, prompt_tokens=1, nanodollars=2**50 + 1),
        }
        assert await table.usage(TODAY, "u") == {
            odd: Used(1, prompt_tokens=1, nanodollars=2**50 + 1)
        }
        assert await table.usage(TOMORROW) == {who: Used(1, 0, 1, output_tokens=1)}
        assert await table.usage("2026-11-21") == {}

    scenario(make_table, steps)


def test_programs_beyond_the_rows_of_a_day_share_one(make_table, monkeypatch):
    monkeypatch.setattr(ledger, "MOST_ROWS", 3)

    async def steps(table):
        for name in "abcdea":
            await call(table, payer(name), output_tokens=1)
        one = Used(1, 0, 1, output_tokens=1)
        rest = Payer("t", "", "tiny", "")
        assert await table.usage(TODAY) == {
            payer("a"): one.plus(one),
            payer("b"): one,
            payer("c"): one,
            rest: one.plus(one),
        }

    scenario(make_table, steps)


def test_an_addition_that_is_repeated_counts_once(redis_server):
    async def steps(table):
        for name in ("one", "one", "two"):
            await table.charge(TODAY, {payer(): Used(1), payer("q"): Used(2)}, name)
        assert await table.usage(TODAY) == {payer(): Used(2), payer("q"): Used(4)}

    run(redis_server, steps)


def test_days_are_forgotten(redis_server, monkeypatch):
    monkeypatch.setattr(ledger, "KEEP_DAYS", 2)

    async def steps(table):
        await call(table, payer())
        left_s = await table._store.redis.ttl(table._store.keys.usage(TODAY))
        assert 2 * ledger.DAY_S < left_s <= 3 * ledger.DAY_S
        kept = ledger.Ledger()
        for day in range(4):
            o = opening(now=NOON + day * ledger.DAY_S)
            kept.close(closing(o, now=o.now_s, payer=payer()))
        assert [*kept.days] == ["2026-11-24", "2026-11-25"]

    run(redis_server, steps)


@pytest.mark.parametrize("seed", range(4))
def test_random_outages_neither_lose_nor_repeat_usage(redis_server, seed):
    """Requests and replies are lost while calls open and close at two gateways."""
    random = Random(seed)

    async def main() -> None:
        counted: Counter[Payer] = Counter()
        direct = RedisTable(redis_server.url, f"usage{seed}", timeout_s=20.0)
        async with RedisProxy(redis_server.port) as one, RedisProxy(redis_server.port) as two:
            lines = (one, two)
            tables = [
                ResilientTable(RedisTable(line.url, f"usage{seed}", timeout_s=20.0), 0.001)
                for line in lines
            ]
            for table in tables:
                await table.ping()
            calls: list[tuple[int, object]] = []

            async def open_one() -> None:
                await asyncio.sleep(random.random() * 0.004)
                at = random.randrange(2)
                o = opening(random.choice(KEYS))
                await tables[at].open_call(o)
                calls.append((at, o))

            async def close_one() -> None:
                await asyncio.sleep(random.random() * 0.004)
                if calls:
                    at, o = calls.pop(random.randrange(len(calls)))
                    who = payer(o.key.program)
                    counted[who] += 1
                    await tables[at].close_call(
                        closing(o, now=NOON, payer=who, output_tokens=7, service_s=0.5)
                    )

            for _ in range(60):
                random.choice(lines).set(random.choice((*Line, Line.OPEN)))
                await asyncio.gather(
                    *[random.choice((open_one, close_one))() for _ in range(random.randrange(6))]
                )
            while calls:
                await close_one()
            for line in lines:
                line.set(Line.OPEN)
            await back(*tables)
            assert await direct.usage(TODAY) == {
                who: Used(n, 0, n, output_tokens=7 * n, engine_us=500_000 * n)
                for who, n in counted.items()
            }
            for table in (*tables, direct):
                await table.aclose()

    asyncio.run(main())
