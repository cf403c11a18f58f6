"""Merging the marks of one thread."""

from __future__ import annotations

from weft_gateway.programs.lineage.marks import Mark, State, merged


def test_new_mark_replaces_the_old_one_and_keeps_lasting_states():
    old = Mark("p", "t", State.EXTENDED | State.FAILED | State.PROVEN, 1.0)
    other = Mark("q", "t", State.RUNS, 2.0)
    new = Mark("p", "t", State.ANSWERED, 3.0)
    state = State.ANSWERED | State.EXTENDED | State.PROVEN
    assert merged([new, other, old]) == [new._replace(state=state), other]


def test_marks_of_different_texts_are_not_merged():
    marks = [Mark("p", "t", State.RUNS, 1.0, length, tail=length) for length in (3, 2, 1)]
    assert merged(marks) == marks
