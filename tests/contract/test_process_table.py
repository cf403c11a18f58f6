"""Contract of ProcessTable, on every implementation."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from support.table import KEY, closing, opening, scenario
from weft_gateway.model import Outcome, ProgramKey


def test_opening_creates_the_program_and_closing_adds_the_usage(make_table):
    async def steps(table):
        o = opening(thread="t", now=10.5)
        opened = await table.open_call(o)
        assert (opened.created, opened.replica) == (True, "r0")
        assert table.in_flight() == {"r0": 1}
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


def test_an_open_call_has_its_thread_and_parent_thread(make_table):
    async def steps(table):
        for thread, parent in (("main", ""), ("sub\n1", "ma\nin"), ("日", "本")):
            await table.open_call(opening(thread=thread, parent=parent))
        found = {(t.thread, t.parent) for t in (await table.get(KEY)).threads}
        assert found == {("main", ""), ("sub\n1", "ma\nin"), ("日", "本")}

    scenario(make_table, steps)


def test_service_is_summed_and_the_critical_path_is_the_longest_chain(make_table):
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


def test_closing_a_call_twice_or_an_unknown_call_changes_nothing(make_table):
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


def test_a_sticky_call_sets_the_home_that_later_sticky_calls_use(make_table):
    async def steps(table):
        assert (await table.open_call(opening(replica="r1", sticky=True))).replica == "r1"
        assert (await table.open_call(opening(replica="r0", sticky=True))).replica == "r1"
        short = await table.open_call(opening(replica="r0"))
        assert (short.replica, short.program.home) == ("r0", "r1")
        assert set(short.program.replicas) == {"r0", "r1"}

    scenario(make_table, steps)


def test_a_program_keeps_the_replica_of_the_call_that_was_opened_last(make_table):
    async def steps(table):
        program, _ = await table.start(KEY, 0.0)
        assert program.last_replica == ""
        first, second = opening(replica="r0"), opening(replica="r1")
        for o in (first, second):
            assert (await table.open_call(o)).program.last_replica == o.candidate
        for o in (second, first):
            assert (await table.close_call(closing(o))).last_replica == "r1"
        program, _ = await table.start(KEY, 3.0)
        assert (program.home, program.replicas) == ("", ("r1",))
        assert (await table.end(KEY, 4.0)).replicas == ("r1",)
        assert (await table.start(KEY, 5.0))[0].last_replica == ""

    scenario(make_table, steps)


def test_an_ineligible_home_is_replaced(make_table):
    async def steps(table):
        await table.open_call(opening(replica="r1", sticky=True))
        moved = await table.open_call(
            opening(replica="r0", sticky=True, eligible=frozenset({"r0"}))
        )
        assert (moved.replica, moved.program.home) == ("r0", "r0")

    scenario(make_table, steps)


def test_an_ephemeral_program_is_removed_with_its_call(make_table):
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


def test_a_program_ended_with_open_calls_is_removed_with_the_last_one(make_table):
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


def test_a_call_after_the_end_revives_a_program_with_open_calls(make_table):
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
def test_any_id_is_returned_unchanged(make_table, name):
    async def steps(table):
        key = ProgramKey("tenant", name)
        o = opening(key, thread=name)
        opened = await table.open_call(o)
        assert (opened.program.key, opened.program.threads[0].thread) == (key, name)
        await table.close_call(closing(o, service_s=0.3))
        assert [p.key for p in await table.programs("tenant", 5)] == [key]
        assert (await table.get(key)).service_s == 0.3

    scenario(make_table, steps)


def test_programs_are_listed_in_pages_per_tenant(make_table):
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
        (gone,) = await table.expire(100.0, 10.0)
        assert gone[:2] == (ProgramKey("t", "idle"), ())
        assert (gone.program.arrival_s, gone.program.ended) == (1.0, True)
        assert [p.key.program for p in await table.programs("t", 9)] == ["busy", "fresh"]

    scenario(make_table, steps)


def test_an_expired_program_reports_its_home_and_the_replica_of_its_last_call(make_table):
    async def steps(table):
        for number, calls in enumerate(([("r1", True), ("r0", False)], [("r1", False)], [])):
            key = ProgramKey("t", f"{number}")
            await table.start(key, 1.0)
            for replica, sticky in calls:
                o = opening(key, replica=replica, sticky=sticky, now=1.0)
                await table.open_call(o)
                await table.close_call(closing(o, now=2.0))
        expired = sorted(await table.expire(100.0, 10.0), key=lambda each: each.key)
        assert [each[:2] for each in expired] == [
            (ProgramKey("t", "0"), ("r1", "r0")),
            (ProgramKey("t", "1"), ("r1",)),
            (ProgramKey("t", "2"), ()),
        ]

    scenario(make_table, steps)


def test_concurrent_calls_of_one_program_agree_on_its_home(make_table):
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


def test_starting_a_session_again_renews_its_activity(make_table):
    async def steps(table):
        await table.start(KEY, 1.0)
        await table.start(KEY, 95.0)
        assert list(await table.expire(100.0, 10.0)) == []
        assert [each[:2] for each in await table.expire(110.0, 10.0)] == [(KEY, ())]

    scenario(make_table, steps)


def test_a_session_without_a_call_has_no_call_times(make_table):
    async def steps(table):
        program, _ = await table.start(KEY, 5.0)
        assert (program.last_arrival_s, program.last_completion_s) == (0.0, 0.0)

    scenario(make_table, steps)


def test_an_ephemeral_program_becomes_permanent_with_an_identified_call(make_table):
    async def steps(table):
        first, second = opening(ephemeral=True), opening()
        await table.open_call(first)
        assert await table.programs("public", 9) == []
        assert not (await table.open_call(second)).program.ephemeral
        await table.close_call(closing(first))
        await table.close_call(closing(second))
        assert [p.key for p in await table.programs("public", 9)] == [KEY]

    scenario(make_table, steps)


def test_an_ephemeral_call_leaves_a_permanent_program_permanent(make_table):
    async def steps(table):
        await table.start(KEY, 1.0)
        o = opening(ephemeral=True)
        assert not (await table.open_call(o)).program.ephemeral
        await table.close_call(closing(o))
        assert await table.get(KEY) is not None

    scenario(make_table, steps)


def test_a_call_after_the_end_creates_a_new_program(make_table):
    async def steps(table):
        o = opening(sticky=True, replica="r1")
        await table.open_call(o)
        await table.close_call(closing(o, service_s=3.0))
        await table.end(KEY, 3.0)
        again = await table.open_call(opening(now=9.0))
        assert again.created
        assert (again.program.arrival_s, again.program.service_s, again.program.home) == (9, 0, "")

    scenario(make_table, steps)


def test_times_keep_their_precision(make_table):
    async def steps(table):
        now = 1_763_693_947.123_456_7
        o = opening(now=now)
        await table.open_call(o)
        program = await table.close_call(closing(o, now=now + 0.1, service_s=1e-6))
        assert (program.arrival_s, program.last_arrival_s) == (now, now)
        assert program.last_completion_s == now + 0.1
        assert program.critical_path_s == 1e-6
        for _ in range(50):
            o = opening(now=now)
            await table.open_call(o)
            program = await table.close_call(closing(o, service_s=0.1, waiting_s=1 / 3))
        assert program.service_s == pytest.approx(5.000001, rel=1e-12)
        assert program.waiting_s == pytest.approx(50 / 3, rel=1e-12)

    scenario(make_table, steps)


def test_calls_and_errors_are_counted(make_table):
    async def steps(table):
        for outcome in Outcome:
            o = opening()
            await table.open_call(o)
            program = await table.close_call(closing(o, outcome=outcome))
        assert (program.calls_closed, program.errors) == (3, 1)

    scenario(make_table, steps)


def test_an_unknown_program_is_none(make_table):
    async def steps(table):
        await table.ping()
        assert table.peek(KEY) is None
        assert await table.get(KEY) is None
        assert await table.end(KEY, 1.0) is None

    scenario(make_table, steps)


def test_work_is_the_cost_on_the_replica_that_the_table_chooses(make_table):
    async def steps(table):
        costs = {"r0": 5, "r1": 9}
        first = opening(replica="r1", sticky=True, costs=costs)
        await table.open_call(first)
        # Its home wins over the candidate.
        second = opening(replica="r0", sticky=True, costs=costs)
        assert (await table.open_call(second)).replica == "r1"
        await table.open_call(third := opening(replica="r2", costs=costs))
        assert table.work() == {"r1": 18}
        for o in (first, second, third):
            await table.close_call(closing(o))
        assert table.work() == {}

    scenario(make_table, steps)
