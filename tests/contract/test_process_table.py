"""The contract of ProcessTable, on every implementation."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.model import Closing, Opening, Outcome, ProgramKey
from gateway.programs.memory import MemoryTable

KEY = ProgramKey("public", "p")
_calls = count()


def opening(key=KEY, *, call=None, replica="r0", sticky=False, now=1.0, **options) -> Opening:
    return Opening(
        key=key,
        call=call or f"call{next(_calls)}",
        thread=options.pop("thread", "main"),
        candidate=replica,
        eligible=options.pop("eligible", frozenset({"r0", "r1"})),
        sticky=sticky,
        now_s=now,
        **options,
    )


def closing(o: Opening, *, now=2.0, outcome=Outcome.OK, **used) -> Closing:
    return Closing(key=o.key, call=o.call, now_s=now, outcome=outcome, **used)


def scenario(make_table, steps) -> None:
    """Run the steps on a new table; the integrity check must hold afterwards."""

    async def main() -> None:
        table = make_table()
        try:
            await steps(table)
            assert list(await table.check()) == []
        finally:
            await table.aclose()

    anyio.run(main)


def test_opening_creates_the_program_and_closing_adds_what_was_used(make_table):
    async def steps(table):
        o = opening(thread="t", now=10.5)
        opened = await table.open_call(o)
        assert (opened.created, opened.replica) == (True, "r0")
        assert opened.in_flight == {"r0": 1}
        assert [(t.call, t.thread, t.replica, t.arrival_s) for t in opened.program.threads] == [
            (o.call, "t", "r0", 10.5)
        ]
        assert list(await table.check()) == []
        program = await table.close_call(
            closing(
                o, now=12.25, service_s=0.1, waiting_s=0.7, prompt_tokens=100, cached_tokens=64,
                output_tokens=9, preemptions=2,
            )
        )  # fmt: skip
        assert program == await table.get(KEY) == table.peek(KEY)
        assert program.threads == ()
        assert (program.service_s, program.waiting_s) == (0.1, 0.7)
        assert (program.prompt_tokens, program.cached_tokens, program.output_tokens) == (100, 64, 9)
        assert (program.calls, program.calls_closed, program.preemptions) == (1, 1, 2)
        assert (program.arrival_s, program.last_arrival_s, program.last_completion_s) == (
            10.5, 10.5, 12.25,
        )  # fmt: skip
        assert table.in_flight() == {}

    scenario(make_table, steps)


def test_service_adds_up_and_the_critical_path_is_the_longest_chain(make_table):
    async def steps(table):
        root = opening()
        await table.open_call(root)
        await table.close_call(closing(root, service_s=1.0))
        left, right = opening(), opening()
        await table.open_call(left)
        await table.open_call(right)
        await table.close_call(closing(left, service_s=2.0))
        program = await table.close_call(closing(right, service_s=5.0))
        assert program.service_s == pytest.approx(8.0)
        assert program.critical_path_s == pytest.approx(6.0)

    scenario(make_table, steps)


def test_closing_twice_or_what_was_never_opened_changes_nothing(make_table):
    async def steps(table):
        o = opening()
        await table.open_call(o)
        first = await table.close_call(closing(o, service_s=1.0))
        assert await table.close_call(closing(o, service_s=1.0)) is None
        assert await table.close_call(closing(opening(), service_s=1.0)) is None
        assert await table.close_call(replace(closing(o), key=ProgramKey("x", "y"))) is None
        assert await table.get(KEY) == first

    scenario(make_table, steps)


def test_a_call_cannot_be_opened_twice(make_table):
    async def steps(table):
        o = opening()
        await table.open_call(o)
        before = await table.get(KEY)
        with pytest.raises(ValueError, match=o.call):
            await table.open_call(o)
        assert await table.get(KEY) == before

    scenario(make_table, steps)


@pytest.mark.parametrize(
    "wrong",
    [{"service_s": -1.0}, {"waiting_s": -0.1}, {"output_tokens": -1}, {"service_s": float("nan")}],
)
def test_negative_use_is_refused_and_changes_nothing(make_table, wrong):
    async def steps(table):
        o = opening()
        await table.open_call(o)
        before = await table.get(KEY)
        with pytest.raises(ValueError, match=next(iter(wrong))):
            await table.close_call(closing(o, **wrong))
        assert await table.get(KEY) == before

    scenario(make_table, steps)


def test_a_sticky_call_makes_a_home_and_later_ones_go_there(make_table):
    async def steps(table):
        assert (await table.open_call(opening(replica="r1", sticky=True))).replica == "r1"
        assert (await table.open_call(opening(replica="r0", sticky=True))).replica == "r1"
        short = await table.open_call(opening(replica="r0"))
        assert (short.replica, short.program.home) == ("r0", "r1")
        assert set(short.program.replicas) == {"r0", "r1"}

    scenario(make_table, steps)


def test_a_home_that_cannot_take_the_call_is_given_up(make_table):
    async def steps(table):
        await table.open_call(opening(replica="r1", sticky=True))
        moved = await table.open_call(
            opening(replica="r0", sticky=True, eligible=frozenset({"r0"}))
        )
        assert (moved.replica, moved.program.home) == ("r0", "r0")

    scenario(make_table, steps)


def test_an_ephemeral_program_goes_with_its_call(make_table):
    async def steps(table):
        o = opening(ephemeral=True)
        assert (await table.open_call(o)).program.ephemeral
        program = await table.close_call(closing(o, service_s=1.0))
        assert program.service_s == 1.0
        assert await table.get(KEY) is None
        assert await table.programs("public", 10) == []

    scenario(make_table, steps)


def test_sessions_are_started_once_and_ended_once(make_table):
    async def steps(table):
        program, created = await table.start(KEY, 5.0)
        assert (program.arrival_s, created) == (5.0, True)
        assert await table.start(KEY, 6.0) == (program, False)
        assert (await table.end(KEY, 7.0)).arrival_s == 5.0
        assert await table.end(KEY, 7.0) is None
        assert await table.get(KEY) is None

    scenario(make_table, steps)


def test_a_program_ended_with_calls_in_flight_goes_with_the_last_of_them(make_table):
    async def steps(table):
        a, b = opening(), opening()
        await table.open_call(a)
        await table.open_call(b)
        assert len((await table.end(KEY, 3.0)).threads) == 2
        assert await table.end(KEY, 3.0) is None
        assert (await table.close_call(closing(a))).ended
        assert await table.get(KEY) is not None
        await table.close_call(closing(b, service_s=2.0))
        assert await table.get(KEY) is None

    scenario(make_table, steps)


def test_a_call_that_comes_after_the_end_brings_the_program_back(make_table):
    async def steps(table):
        a, b = opening(), opening()
        await table.open_call(a)
        await table.end(KEY, 3.0)
        assert not (await table.open_call(b)).program.ended
        await table.close_call(closing(a))
        await table.close_call(closing(b))
        assert (await table.get(KEY)).calls_closed == 2

    scenario(make_table, steps)


@pytest.mark.parametrize(
    "name", ["a b", "ü:/{}\n", "日本", "x" * 256, "\udc80", "a/b", "*", "%00", "\x00"]
)
def test_any_id_comes_back_as_it_was(make_table, name):
    async def steps(table):
        key = ProgramKey("tenant", name)
        o = opening(key, thread=name)
        opened = await table.open_call(o)
        assert (opened.program.key, opened.program.threads[0].thread) == (key, name)
        await table.close_call(closing(o, service_s=0.3))
        assert [p.key for p in await table.programs("tenant", 5)] == [key]
        assert (await table.get(key)).service_s == 0.3

    scenario(make_table, steps)


def test_programs_are_listed_in_pages_for_their_tenant_alone(make_table):
    async def steps(table):
        for name in ("c", "a", "b"):
            await table.start(ProgramKey("one", name), 1.0)
        await table.start(ProgramKey("two", "z"), 1.0)
        first = await table.programs("one", 2)
        assert [p.key.program for p in first] == ["a", "b"]
        assert [p.key.program for p in await table.programs("one", 2, "b")] == ["c"]

    scenario(make_table, steps)


def test_idle_programs_are_removed_and_busy_ones_stay(make_table):
    async def steps(table):
        await table.start(ProgramKey("t", "idle"), 1.0)
        await table.start(ProgramKey("t", "fresh"), 95.0)
        await table.open_call(opening(ProgramKey("t", "busy"), now=1.0))
        assert list(await table.expire(100.0, 10.0)) == [ProgramKey("t", "idle")]
        assert [p.key.program for p in await table.programs("t", 9)] == ["busy", "fresh"]

    scenario(make_table, steps)


def test_many_calls_of_one_program_at_once_agree_on_its_home(make_table):
    async def steps(table):
        replicas: set[str] = set()

        async def one(number: int) -> None:
            o = opening(replica=f"r{number % 2}", sticky=True)
            replicas.add((await table.open_call(o)).replica)
            await table.close_call(closing(o, service_s=0.25))

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(one, number)
        assert len(replicas) == 1
        assert (await table.get(KEY)).service_s == 25.0

    scenario(make_table, steps)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["open", "close", "start", "end", "expire"]),
        st.integers(0, 2),
        st.booleans(),
        st.floats(0, 10, allow_nan=False),
    ),
    max_size=40,
)


@given(ACTIONS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_order_of_events_gives_the_same_rows_as_memory(make_table, actions):
    async def steps(table):
        model = MemoryTable()
        open_calls: list[Opening] = []
        for now, (action, which, flag, amount) in enumerate(actions, start=1):
            key = ProgramKey("t", f"p{which}")
            for each in (table, model):
                if action == "open":
                    o = opening(
                        key, call=f"c{now}", replica=f"r{which % 2}", sticky=flag, now=float(now),
                        ephemeral=which == 2,
                    )  # fmt: skip
                    await each.open_call(o)
                elif action == "close" and open_calls:
                    await each.close_call(
                        closing(open_calls[which % len(open_calls)], now=float(now),
                                service_s=amount, waiting_s=amount / 2)
                    )  # fmt: skip
                elif action == "start":
                    await each.start(key, float(now))
                elif action == "end":
                    await each.end(key, float(now))
                elif action == "expire":
                    await each.expire(float(now), amount)
            if action == "open":
                open_calls.append(o)
            elif action == "close" and open_calls:
                del open_calls[which % len(open_calls)]
            assert list(await table.check()) == []
            assert list(await model.check()) == []
        assert table.in_flight() == model.in_flight() or not open_calls
        for which in range(3):
            key = ProgramKey("t", f"p{which}")
            ours, theirs = await table.get(key), await model.get(key)
            assert (ours is None) == (theirs is None)
            if ours is not None:
                assert replace(ours, service_s=0, critical_path_s=0, waiting_s=0) == replace(
                    theirs, service_s=0, critical_path_s=0, waiting_s=0
                )
                assert ours.service_s == pytest.approx(theirs.service_s)
                assert ours.critical_path_s == pytest.approx(theirs.critical_path_s)

    scenario(make_table, steps)
