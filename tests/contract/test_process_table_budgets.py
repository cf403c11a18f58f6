"""Budgets in the process table: reserved at the opening of a call, settled at its end."""

from __future__ import annotations

from random import Random

import pytest
from support.redis_rows import age_leases
from support.redis_table import run
from support.table import KEY, KEYS, closing, opening, scenario
from weft_gateway.model import Outcome, ProgramKey
from weft_gateway.model.spending import (
    NO_ALLOWANCE,
    Allowance,
    AtLimit,
    Charge,
    Reserve,
)
from weft_gateway.programs.memory import MemoryTable
from weft_gateway.programs.table import BudgetSpent

TEN = Reserve(6, 4, 500_000, 7)


async def tell(table, **changes):
    return await table.set_budget(KEY, changes, 1.0)


@pytest.mark.parametrize(
    ("changes", "first", "spent"),
    [
        ({"tokens": 10}, {"prompt_tokens": 6, "output_tokens": 3}, 9),
        ({"input_tokens": 10}, {"prompt_tokens": 12, "cached_tokens": 3}, 9),
        ({"cached_tokens": 10}, {"prompt_tokens": 12, "cached_tokens": 9}, 9),
        ({"output_tokens": 10}, {"output_tokens": 9}, 9),
        ({"calls": 2}, {}, 1),
        ({"engine_s": 2.5}, {"service_s": 2.25}, 2.25),
        ({"nanodollars": 10}, {"nanodollars": 9}, 9),
    ],
)
def test_call_passes_until_a_limit_is_reached(make_table, changes, first, spent):
    async def steps(table):
        await table.start(KEY, 1.0)
        assert (await tell(table, **changes)).allowance == Allowance(**changes)
        (name,) = changes
        for used in (first, {"prompt_tokens": 2, "cached_tokens": 1, "output_tokens": 1,
                             "service_s": 0.5, "nanodollars": 1}):  # fmt: skip
            o = opening()
            await table.open_call(o)
            program = await table.close_call(closing(o, **used))
            if used is first:
                assert getattr(program.used(9.0), name) == pytest.approx(spent)
        with pytest.raises(BudgetSpent) as error:
            await table.open_call(opening())
        assert getattr(error.value.program.used(9.0), name) >= changes[name]
        # A raise, and no limit.
        await tell(table, **{name: 100 * changes[name]})
        o = opening()
        await table.open_call(o)
        await table.close_call(closing(o))
        assert (await tell(table, **{name: None})).allowance is NO_ALLOWANCE

    scenario(make_table, steps)


def test_reservations_count_until_their_calls_end(make_table):
    async def steps(table):
        asked = Allowance(tokens=20, wall_s=50.0)
        calls = [opening(reserve=TEN, allowance=asked) for _ in range(2)]
        for o in calls:
            program = (await table.open_call(o)).program
        assert program.allowance == asked
        assert program.reserved() == TEN.amounts(2)._replace(
            tokens=20, input_tokens=12, cached_tokens=12, output_tokens=8, engine_s=1.0,
            nanodollars=14,
        )  # fmt: skip
        with pytest.raises(BudgetSpent):
            await table.open_call(opening(reserve=TEN))
        # Another attempt of an open call, and a call that is refused later.
        again = opening(reserve=TEN, admitted=True)
        await table.open_call(again)
        for o in (again, calls[0]):
            await table.close_call(closing(o, outcome=Outcome.REFUSED))
        o = opening(reserve=TEN, now=50.0)
        await table.open_call(o)
        for each in (o, calls[1]):
            await table.close_call(closing(each))
        with pytest.raises(BudgetSpent):
            await table.open_call(opening(now=51.0))

    scenario(make_table, steps)


def test_warning_refuses_nothing_and_a_budget_of_nothing_everything(make_table):
    async def steps(table):
        for number, at_limit in enumerate(AtLimit):
            key = ProgramKey("t", f"p{number}")
            o = opening(key, allowance=Allowance(calls=0, at_limit=at_limit))
            if at_limit is AtLimit.WARN:
                await table.open_call(o)
                await table.close_call(closing(o))
            else:
                with pytest.raises(BudgetSpent):
                    await table.open_call(o)
                assert await table.get(key) is None

    scenario(make_table, steps)


def test_accounts_of_keys_and_classes_pay_for_all_programs(make_table):
    async def steps(table):
        def charged(number, since=0.0, now=1.0):
            charges = (
                Charge("key a", Allowance(tokens=30), since),
                Charge("class b", Allowance(calls=9)),
            )
            return opening(KEYS[number], reserve=TEN, charges=charges, now=now)

        calls = [charged(number) for number in range(3)]
        for number, o in enumerate(calls):
            key, of_class = (await table.open_call(o)).accounts
            assert (key.open_calls, of_class.open_calls) == (number + 1, number + 1)
        with pytest.raises(BudgetSpent) as error:
            await table.open_call(charged(3))
        assert [one.reserve.prompt_tokens for one in error.value.accounts] == [18, 18]
        for o in calls:
            used = {"prompt_tokens": 5, "cached_tokens": 1, "output_tokens": 6, "nanodollars": 3}
            await table.close_call(closing(o, service_s=0.5, **used))
        with pytest.raises(BudgetSpent) as error:
            await table.open_call(charged(3))
        key = error.value.accounts[0]
        assert tuple(key.used(3.0)) == (33, 12, 3, 18, 3, 1.5, 2.0, 9)
        assert key.reserved() == Reserve().amounts(0)
        # A new period: calls in flight settle in it, and it does not go back.
        late, early = charged(3, 100.0, 101.0), charged(3, 50.0, 102.0)
        key, of_class = (await table.open_call(late)).accounts
        assert (key.since_s, key.begun_s, key.calls, of_class.calls) == (100.0, 101.0, 0, 3)
        key = (await table.open_call(early)).accounts[0]
        assert (key.since_s, key.open_calls) == (100.0, 2)
        for o in (late, early):
            await table.close_call(closing(o))

    scenario(make_table, steps)


def test_calls_of_a_gateway_that_died_return_what_they_reserved(redis_server):
    async def steps(alive, dead):
        charges = (Charge("key a", Allowance(tokens=15)),)
        asked = Allowance(tokens=15)
        o = opening(reserve=TEN, charges=charges, allowance=asked)
        await dead.open_call(o)
        await alive.open_call(opening(reserve=TEN, charges=charges))
        for _ in range(2):
            with pytest.raises(BudgetSpent):
                await alive.open_call(opening(reserve=TEN, charges=charges))
        await age_leases(alive, 1000.0)
        await alive.expire(2.0, 1e9)
        assert len((await alive.get(KEY)).threads) == 1
        (account,) = (await alive.open_call(opening(reserve=TEN, charges=charges))).accounts
        assert (account.open_calls, account.calls, account.used(2.0).tokens) == (2, 1, 0)
        # The gateway is alive after all.
        assert await dead.close_call(closing(o, prompt_tokens=99)) is None
        assert (await alive.get(KEY)).prompt_tokens == 0

    run(redis_server, steps, gateways=2)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("gateways", [1, 4])
def test_random_programs_and_crashes_are_never_more_than_one_call_over(request, gateways, seed):
    """Every call uses at most what it reserves. Then no budget is exceeded by more than its last
    call, and what programs and accounts have used is what their calls have used.
    """

    async def steps(*tables):
        rng = Random(seed)
        limits = {key: rng.randrange(50, 300) for key in KEYS}
        key_limit, class_limit = rng.randrange(100, 800), rng.randrange(5, 30)
        live, open_calls = list(tables), []
        used, passed, refused = dict.fromkeys(KEYS, 0), 0, 0
        calls = lost = 0
        charges = (
            Charge("key t", Allowance(tokens=key_limit)),
            Charge("class c", Allowance(calls=class_limit)),
        )
        for _ in range(250):
            action, key = (
                rng.choices(("open", "close", "crash", "expire"), (6, 5, 0.2, 0.5))[0],
                (rng.choice(KEYS)),
            )
            if action == "open":
                own = Reserve(rng.randrange(20), rng.randrange(30))
                gateway = rng.choice(live)
                o = opening(
                    key, reserve=own, charges=charges, allowance=Allowance(tokens=limits[key])
                )
                try:
                    await gateway.open_call(o)
                except BudgetSpent:
                    refused += 1
                else:
                    passed += 1
                    open_calls.append((gateway, o))
            elif action == "close" and open_calls:
                gateway, o = open_calls.pop(rng.randrange(len(open_calls)))
                prompt = rng.randint(0, o.reserve.prompt_tokens)
                output = rng.randint(0, o.reserve.output_tokens)
                await gateway.close_call(closing(o, prompt_tokens=prompt, output_tokens=output))
                used[o.key] += prompt + output
                calls += 1
            elif action == "crash" and len(live) > 1:
                gone = live.pop()
                gone._leases.clear()
                lost += sum(gateway is gone for gateway, _ in open_calls)
                open_calls = [each for each in open_calls if each[0] is not gone]
            elif action == "expire" and gateways > 1:
                # The calls of the dead lapse, and the others are renewed.
                await age_leases(live[0], 1000.0)
                for gateway in live:
                    await gateway._renew()
                await live[0].expire(2.0, 1e9)
            assert list(await live[0].check()) == []
        for gateway, o in open_calls:
            await gateway.close_call(closing(o, prompt_tokens=o.reserve.prompt_tokens,
                                             output_tokens=o.reserve.output_tokens))  # fmt: skip
            used[o.key] += o.reserve.prompt_tokens + o.reserve.output_tokens
            calls += 1
        if gateways > 1:
            await age_leases(live[0], 1000.0)
            await live[0].expire(2.0, 1e9)
        for key in KEYS:
            program = await live[0].get(key)
            if program is not None:
                assert program.used(2.0).tokens == used[key]
                assert program.reserved() == Reserve().amounts(0)._replace(calls=0)
                assert used[key] < limits[key] + 50
        probe = opening(charges=charges, admitted=True)
        key_account, class_account = (await live[0].open_call(probe)).accounts
        await live[0].close_call(closing(probe, outcome=Outcome.REFUSED))
        assert key_account.used(2.0).tokens == sum(used.values()) < key_limit + 50
        assert class_account.calls == calls + lost <= class_limit
        assert passed == calls + lost
        assert refused

    if gateways == 1:
        scenario(MemoryTable, steps)
    else:
        run(request.getfixturevalue("redis_server"), steps, gateways)
