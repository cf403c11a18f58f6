"""Goals of programs in the process table: class, deadline, and the begin of their unit."""

from __future__ import annotations

from support.table import KEY, closing, opening, scenario
from weft_gateway.model import Outcome
from weft_gateway.model.slo import NO_GOAL, Ask, Goal, Scope

REPORT = Goal("report", Scope.PROGRAM, 90.0)
CHAT = Goal("chat", Scope.TURN, 8.0)


async def call(table, now, ask=None, *, ends=None):
    """Open and close a call; return the program in between."""
    o = opening(now=now, ask=ask)
    program = (await table.open_call(o)).program
    await table.close_call(closing(o, now=now if ends is None else ends))
    return program


def test_program_without_a_goal_has_none(make_table):
    async def steps(table):
        assert (await call(table, 1.0)).goal is NO_GOAL

    scenario(make_table, steps)


def test_target_counts_from_the_programs_first_call(make_table):
    async def steps(table):
        first = await call(table, 10.0, Ask(REPORT))
        later = await call(table, 50.0, Ask(REPORT))
        assert first.goal == later.goal == Goal("report", Scope.PROGRAM, 90.0, 10.0, 0)
        assert later.goal.target_s == 100.0

    scenario(make_table, steps)


def test_goal_of_a_session_begins_with_its_first_call(make_table):
    async def steps(table):
        program, _ = await table.start(KEY, 1.0, Ask(REPORT, explicit=True))
        assert (program.goal, program.goal.target_s) == (REPORT, 0.0)
        assert (await call(table, 30.0)).goal.target_s == 120.0

    scenario(make_table, steps)


def test_client_replaces_the_goal_and_a_default_does_not(make_table):
    async def steps(table):
        await call(table, 10.0, Ask(REPORT))
        assert (await call(table, 20.0, Ask(CHAT))).goal.slo == "report"
        asked = Ask(Goal("", Scope.PROGRAM, 30.0), explicit=True)
        assert (await call(table, 21.0, asked)).goal.target_s == 40.0
        # The next call without an ask keeps it.
        assert (await call(table, 22.0)).goal.target_s == 40.0

    scenario(make_table, steps)


def test_refused_call_leaves_no_trace_and_the_target_counts_from_the_next_call(make_table):
    async def steps(table):
        await table.start(KEY, 1.0, Ask(REPORT, explicit=True))
        o = opening(now=10.0)
        assert (await table.open_call(o)).program.goal.target_s == 100.0
        after = await table.close_call(closing(o, now=11.0, outcome=Outcome.REFUSED))
        assert after is not None
        assert (after.calls, after.calls_closed, after.errors, after.threads) == (0, 0, 0, ())
        assert (after.goal, after.path_calls) == (REPORT, 0)
        assert (await call(table, 40.0)).goal.target_s == 130.0

    scenario(make_table, steps)


def test_refused_call_beside_another_leaves_the_target(make_table):
    async def steps(table):
        o, beside = opening(now=10.0, ask=Ask(REPORT)), opening(now=11.0)
        await table.open_call(o)
        await table.open_call(beside)
        after = await table.close_call(closing(o, now=12.0, outcome=Outcome.REFUSED))
        assert after is not None
        assert [thread.call for thread in after.threads] == [beside.call]
        assert after.goal.target_s == 100.0
        await table.close_call(closing(beside, now=13.0))

    scenario(make_table, steps)


def test_refused_single_call_removes_its_program(make_table):
    async def steps(table):
        o = opening(now=10.0, ask=Ask(REPORT), ephemeral=True)
        await table.open_call(o)
        await table.close_call(closing(o, now=11.0, outcome=Outcome.REFUSED))
        assert await table.get(KEY) is None

    scenario(make_table, steps)


def test_goal_of_a_later_call_counts_from_the_programs_arrival(make_table):
    async def steps(table):
        await call(table, 10.0)
        assert (await call(table, 20.0, Ask(REPORT))).goal.target_s == 100.0

    scenario(make_table, steps)


def test_each_turn_has_its_own_target(make_table):
    async def steps(table):
        assert (await call(table, 10.0, Ask(CHAT, turn=True))).goal.target_s == 18.0
        assert (await call(table, 15.0, Ask(CHAT))).goal.target_s == 18.0
        second = (await call(table, 100.0, Ask(CHAT, turn=True))).goal
        assert second == Goal("chat", Scope.TURN, 8.0, 100.0, 2)

    scenario(make_table, steps)


def test_turn_of_a_session_needs_no_class_of_the_call(make_table):
    async def steps(table):
        await table.start(KEY, 1.0, Ask(CHAT, explicit=True))
        assert (await call(table, 10.0, Ask(NO_GOAL, turn=True))).goal.target_s == 18.0
        assert (await call(table, 12.0)).goal.target_s == 18.0
        assert (await call(table, 20.0, Ask(NO_GOAL, turn=True))).goal.target_s == 28.0

    scenario(make_table, steps)


def test_parallel_calls_count_once_on_the_path(make_table):
    async def steps(table):
        await call(table, 1.0, Ask(REPORT))
        both = [opening(now=2.0), opening(now=2.5)]
        opened = [(await table.open_call(one)).program.path_calls for one in both]
        closed = [(await table.close_call(closing(one))).path_calls for one in both]
        assert (opened, closed) == ([1, 1], [2, 2])
        assert (await call(table, 4.0)).path_calls == 2

    scenario(make_table, steps)


def test_prefill_is_no_call_of_the_path(make_table):
    async def steps(table):
        o = opening(now=1.0)
        await table.open_call(o)
        assert (await table.close_call(closing(o, advance=True))).path_calls == 0
        assert (await call(table, 2.0)).path_calls == 0
        assert (await call(table, 3.0)).path_calls == 1

    scenario(make_table, steps)


def test_ended_program_with_a_goal_comes_with_its_last_state(make_table):
    async def steps(table):
        await call(table, 1.0, Ask(REPORT), ends=5.0)
        (gone,) = await table.expire(100.0, 10.0)
        assert gone.key == KEY
        assert (gone.program.goal.target_s, gone.program.last_completion_s) == (91.0, 5.0)

    scenario(make_table, steps)
