"""Random sequences of events give the same answers on every process table as in memory."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.table import Twin, same, scenario

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["open", "open", "close", "close", "start", "tell", "end", "expire"]),
        st.integers(0, 3),
        st.booleans(),
        st.floats(0, 10, allow_nan=False),
    ),
    max_size=40,
)


@given(ACTIONS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_order_of_events_gives_the_same_answers_as_memory(make_table, actions):
    async def steps(table):
        reference = Twin()
        for action in actions:
            await reference.step(table, *action)
            assert list(await table.check()) == []
            assert list(await reference.table.check()) == []
            await table.count()
            assert table.work() == reference.table.work() == reference.work
        while reference.open_calls:
            await reference.step(table, "close", 0, False, 1.0)
        assert table.in_flight() == table.work() == {}
        found = [await each.programs("t", 9) for each in (table, reference.table)]
        assert len(found[0]) == len(found[1])
        for ours, theirs in zip(*found, strict=True):
            same(ours, theirs)

    scenario(make_table, steps)
