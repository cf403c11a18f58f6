"""Contract of the attributes of programs that clients set, on every process table."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from support.redis_proxy import Line, RedisProxy
from support.table import KEY, closing, opening, scenario
from support.waiting import back
from weft_gateway.model import ProgramAttribute, ProgramKey
from weft_gateway.programs.redis import RedisTable
from weft_gateway.programs.resilient import ResilientTable

_prefixes = (f"attributes{number}" for number in count())
TAGS = ProgramAttribute("tags", "[[1,\n2]]", 50.0)


def test_calls_carry_an_attribute_until_it_expires(make_table):
    async def steps(table):
        assert (await table.set_attribute(KEY, TAGS, 1.0)).attributes == (TAGS,)
        first = opening(now=2.0)
        assert (await table.open_call(first)).program.attributes == (TAGS,)
        assert (await table.close_call(closing(first, now=3.0))).attributes == (TAGS,)
        assert table.peek(KEY).attributes == (await table.get(KEY)).attributes == (TAGS,)
        program = await table.get(KEY)
        assert program.attribute("tags", 49.9) == TAGS.text
        assert program.attribute("tags", 50.0) == program.attribute("other", 1.0) == ""
        last = opening(now=50.0)
        assert (await table.open_call(last)).program.attributes == ()
        assert (await table.close_call(closing(last, now=51.0))).attributes == ()

    scenario(make_table, steps)


def test_the_last_value_of_an_attribute_holds_and_can_be_removed(make_table):
    async def steps(table):
        await table.set_attribute(KEY, TAGS, 1.0)
        later = ProgramAttribute("tags", "日本", 30.0)
        other = ProgramAttribute("a", "x", 90.0)
        await table.set_attribute(KEY, later, 1.0)
        assert (await table.set_attribute(KEY, other, 1.0)).attributes == (other, later)
        # Expired attributes stay while another one is valid.
        o = opening(now=40.0)
        assert (await table.open_call(o)).program.attributes == (other, later)
        await table.close_call(closing(o, now=41.0))
        assert (
            await table.set_attribute(KEY, ProgramAttribute("a", "", 0.0), 42.0)
        ).attributes == (later,)
        o = opening(now=43.0)
        assert (await table.open_call(o)).program.attributes == ()
        await table.close_call(closing(o, now=44.0))

    scenario(make_table, steps)


def test_setting_an_attribute_creates_the_program_and_removing_one_does_not(make_table):
    async def steps(table):
        assert await table.set_attribute(KEY, ProgramAttribute("tags", "", 0.0), 1.0) is None
        assert await table.get(KEY) is None
        assert (await table.set_attribute(KEY, TAGS, 1.0)).calls == 0
        assert (await table.counts()).alive == 1
        assert [p.key for p in await table.programs(KEY.tenant, 9)] == [KEY]
        await table.end(KEY, 2.0)
        assert await table.set_attribute(KEY, ProgramAttribute("tags", "", 0.0), 3.0) is None
        # A successor does not inherit attributes.
        assert (await table.start(KEY, 4.0))[0].attributes == ()

    scenario(make_table, steps)


def test_removing_an_attribute_does_not_revive_an_ending_program(make_table):
    async def steps(table):
        await table.set_attribute(KEY, TAGS, 1.0)
        o = opening()
        await table.open_call(o)
        await table.end(KEY, 2.0)
        program = await table.set_attribute(KEY, ProgramAttribute("tags", "", 0.0), 3.0)
        assert (program.ended, program.attributes) == (True, ())
        await table.close_call(closing(o))
        assert await table.get(KEY) is None

    scenario(make_table, steps)


def test_a_tenants_attributes_evict_only_its_own_programs(make_table):
    async def steps(table):
        await table.set_attribute(KEY, TAGS, 1.0)
        for number in range(4):
            await table.set_attribute(ProgramKey("loud", f"p{number}"), TAGS, 2.0 + number)
        assert (await table.get(KEY)).attributes == (TAGS,)
        assert [p.key.program for p in await table.programs("loud", 9)] == ["p2", "p3"]

    scenario(lambda: make_table(per_tenant=2), steps)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        (ProgramAttribute("", "x", 1.0), "invalid attribute name"),
        (ProgramAttribute("a\nb", "x", 1.0), "invalid attribute name"),
        (ProgramAttribute("n" * 33, "x", 1.0), "invalid attribute name"),
        (ProgramAttribute("tags", "x" * 16_385, 1.0), "at most 16384"),
    ],
)
def test_an_invalid_attribute_is_refused_and_changes_nothing(make_table, attribute, message):
    async def steps(table):
        with pytest.raises(ValueError, match=message):
            await table.set_attribute(KEY, attribute, 1.0)
        assert await table.get(KEY) is None

    scenario(make_table, steps)


def test_an_attribute_set_during_an_outage_reaches_the_other_gateways_afterwards(redis_server):
    async def main() -> None:
        prefix = next(_prefixes)
        async with RedisProxy(redis_server.port) as proxy:
            left = ResilientTable(RedisTable(proxy.url, prefix, timeout_s=20.0), 0.005)
            right = ResilientTable(RedisTable(redis_server.url, prefix, timeout_s=20.0), 0.005)
            try:
                await left.set_attribute(KEY, TAGS, 1.0)
                assert (await right.open_call(opening())).program.attributes == (TAGS,)
                proxy.set(Line.CUT)
                during = ProgramAttribute("tags", "during", 60.0)
                assert (await left.set_attribute(KEY, during, 2.0)).attributes == (during,)
                assert left.local
                assert left.peek(KEY).attributes == (during,)
                proxy.set(Line.OPEN)
                await back(left)
                assert (await right.get(KEY)).attributes == (during,)
                assert list(await right.check()) == []
            finally:
                await left.aclose()
                await right.aclose()

    asyncio.run(main())
