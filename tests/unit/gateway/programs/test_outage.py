"""What a gateway keeps while the shared table is away."""

from __future__ import annotations

import pytest
from support.table import KEY, closing, opening
from weft_gateway.model import Opened, Program, ProgramKey
from weft_gateway.programs import rules
from weft_gateway.programs.events import Ended, Started
from weft_gateway.programs.outage import Held, Outage

pytestmark = pytest.mark.anyio


def held(o, program=None):
    row = program or rules.fresh(o.key, 1.0, o.ephemeral)
    program, replica = rules.opened(row, o)
    return Held(o, Opened(program, replica, True))


async def test_it_begins_with_what_was_seen_and_with_every_open_call():
    o, nameless = opening(), opening(ProgramKey("t", "n"), ephemeral=True)
    seen = Program(KEY, 1.0, service_s=4.0, calls=1, calls_closed=1)
    outage = Outage([seen], {each.call: held(each) for each in (o, nameless)})
    assert [t.call for t in outage.view.peek(KEY).threads] == [o.call]
    assert outage.view.in_flight() == {"r0": 2}
    assert await outage.view.check() == []
    assert outage.base == [seen]
    assert (await outage.close_call(closing(nameless))).ephemeral
    assert outage.view.peek(nameless.key) is None


async def test_the_journal_has_events_in_their_order_and_settled():
    outage = Outage([], {})
    o = opening(sticky=True)
    opened = await outage.open_call(o)
    assert opened.local
    await outage.start(KEY, 2.0, "e1")
    await outage.end(KEY, 3.0, "e2")
    await outage.close_call(closing(o))
    first, *rest = outage.events
    # Its replica cannot become another one when it is replayed.
    assert (first.candidate, first.eligible, first.sticky) == ("r0", frozenset(), True)
    assert rest == [Started(KEY, 2.0, "e1"), Ended(KEY, 3.0, "e2"), closing(o)]
    assert outage.touched() == [KEY]
    assert outage.still_open == {}


async def test_beyond_its_limit_calls_are_not_noted_but_those_from_before_are():
    before, noted, extra = opening(), opening(), opening()
    outage = Outage([], {before.call: held(before)}, max_events=1)
    for o in (noted, extra):
        await outage.open_call(o)
    for o in (extra, before, noted):
        assert await outage.close_call(closing(o)) is not None
    assert outage.uncounted == 1
    assert [event.call for event in outage.events] == [noted.call, before.call, noted.call]


async def test_answers_that_come_late_are_not_noted_as_new():
    outage = Outage([], {})
    o = opening()
    late = held(o)
    await outage.opened_there(o, Opened(late.program, "r0", True))
    assert set(outage.still_open) == {o.call}
    await outage.closed_there(closing(o), rules.closed(late.program, closing(o), 0.0))
    assert (outage.still_open, outage.before, outage.events) == ({}, {}, [])
    assert [program.calls_closed for program in outage.base] == [1]
