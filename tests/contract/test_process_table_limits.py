"""Contract of the limit on programs per tenant, on every process table."""

from __future__ import annotations

from functools import partial

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.table import closing, opening, scenario
from weft_gateway.model import ProgramKey
from weft_gateway.programs.memory import MemoryTable


def key(name, tenant="t"):
    return ProgramKey(tenant, name)


async def call_once(table, name, now):
    o = opening(key(name), now=now)
    await table.open_call(o)
    await table.close_call(closing(o, now=now + 0.5))


async def names(table, tenant="t"):
    return [program.key.program for program in await table.programs(tenant, 99)]


def test_a_program_over_the_limit_evicts_the_least_recently_active_one(make_table):
    async def steps(table):
        for now, name in enumerate("abc", start=1):
            await call_once(table, name, float(now))
        await call_once(table, "a", 4.0)
        await call_once(table, "d", 5.0)
        assert await names(table) == ["a", "c", "d"]
        await table.start(key("e"), 6.0)
        assert await names(table) == ["a", "d", "e"]
        assert await table.counts() == (5, 2, 3)
        # The evicted program was ended: a new call creates it again.
        o = opening(key("b"), now=7.0)
        assert (await table.open_call(o)).created
        assert (await table.get(key("b"))).calls == 1
        await table.close_call(closing(o, now=8.0))

    scenario(partial(make_table, per_tenant=3), steps)


def test_programs_with_open_calls_and_of_other_tenants_are_not_evicted(make_table):
    async def steps(table):
        await table.start(key("theirs", "other"), 0.5)
        calls = [opening(key(name), now=float(now)) for now, name in enumerate("abc", start=1)]
        for o in calls:
            await table.open_call(o)
        assert await names(table) == ["a", "b", "c"]
        await table.close_call(closing(calls[1], now=5.0))
        await table.start(key("d"), 6.0)
        assert await names(table) == ["a", "c", "d"]
        for o in (calls[0], calls[2]):
            await table.close_call(closing(o, now=7.0))
        assert await names(table, "other") == ["theirs"]

    scenario(partial(make_table, per_tenant=2), steps)


def test_known_programs_and_ephemeral_calls_evict_no_program(make_table):
    async def steps(table):
        for name in "ab":
            await table.start(key(name), 1.0)
        ephemeral = [opening(key(f"x{n}"), now=2.0, ephemeral=True) for n in range(5)]
        for o in ephemeral:
            await table.open_call(o)
        for o in ephemeral:
            await table.close_call(closing(o, now=3.0))
        for name in "abab":
            await call_once(table, name, 4.0)
            await table.start(key(name), 5.0)
        assert await names(table) == ["a", "b"]
        # An ephemeral program becomes a named one while its call is open.
        o = opening(key("y"), now=6.0, ephemeral=True)
        await table.open_call(o)
        await table.start(key("y"), 7.0)
        assert len(await names(table)) == 2
        await table.close_call(closing(o, now=8.0))

    scenario(partial(make_table, per_tenant=2), steps)


@given(
    st.lists(
        st.tuples(st.sampled_from(["open", "open", "close", "start", "end"]), st.integers(0, 7)),
        max_size=40,
    )
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_random_sequences_keep_the_same_programs_as_in_memory(make_table, actions):
    async def steps(table):
        reference = MemoryTable(per_tenant=3)
        opened = []
        for now, (action, which) in enumerate(actions, start=1):
            done = []
            for each in (table, reference):
                if action == "open":
                    o = opening(key(f"p{which}"), call=f"c{now}", now=float(now))
                    done.append((await each.open_call(o)).created)
                elif action == "close" and opened:
                    o = opened[which % len(opened)]
                    done.append((await each.close_call(closing(o, now=float(now)))).key)
                elif action == "start":
                    done.append((await each.start(key(f"p{which}"), float(now)))[1])
                elif action == "end":
                    done.append(await each.end(key(f"p{which}"), float(now)) is None)
            if action == "open":
                opened.append(o)
            elif action == "close" and opened:
                opened.pop(which % len(opened))
            assert done[:1] == done[1:]
            assert await names(table) == await names(reference)
            assert await table.counts() == await reference.counts()
            assert [*await table.check(), *await reference.check()] == []
            if action in ("open", "start") and done[0]:
                busy = {o.key for o in opened}
                assert len(await names(table)) <= max(3, len(busy) + 1)
        for o in opened:
            await table.close_call(closing(o, now=100.0))

    scenario(partial(make_table, per_tenant=3), steps)
