"""Tags told ahead: bounded, expiring, replaced."""

from __future__ import annotations

from gateway.model import ProgramKey
from gateway.model.hint import OwnTag
from gateway.model.tag import Tag
from gateway.overlap.told import ToldTags

KEY = ProgramKey("t", "p")
ONE = (OwnTag("tags[0]", Tag.TOOL_OUTPUT, 3),)
TWO = (OwnTag("tags[0]", Tag.USER_QUERY, 4),)


def test_the_last_word_holds_for_its_program_until_its_time():
    told = ToldTags()
    told.tell(KEY, ONE, 10.0)
    told.tell(KEY, TWO, 20.0)
    assert told.of(KEY, 19.9) == TWO
    assert told.of(ProgramKey("u", "p"), 1.0) == ()
    assert told.of(KEY, 20.0) == ()
    assert len(told) == 0


def test_nothing_told_forgets_what_was():
    told = ToldTags()
    told.tell(KEY, ONE, 10.0)
    told.tell(KEY, (), 10.0)
    assert told.of(KEY, 1.0) == ()


def test_the_oldest_program_goes_first():
    told = ToldTags(limit=2)
    for name in "abc":
        told.tell(ProgramKey("t", name), ONE, 10.0)
    assert [bool(told.of(ProgramKey("t", name), 1.0)) for name in "abc"] == [False, True, True]
