"""Marks of one thread become one."""

from __future__ import annotations

from weft_gateway.programs.lineage.marks import Mark, State, merged


def test_news_of_a_thread_takes_the_place_of_the_old_and_some_of_that_lasts():
    old = Mark("p", "t", State.EXTENDED | State.FAILED | State.PROVEN, 1.0)
    other = Mark("q", "t", State.RUNS, 2.0)
    new = Mark("p", "t", State.ANSWERED, 3.0)
    state = State.ANSWERED | State.EXTENDED | State.PROVEN
    assert merged([new, other, old]) == [new._replace(state=state), other]


def test_ends_of_different_texts_stay_apart():
    marks = [Mark("p", "t", State.RUNS, 1.0, length, tail=length) for length in (3, 2, 1)]
    assert merged(marks) == marks
