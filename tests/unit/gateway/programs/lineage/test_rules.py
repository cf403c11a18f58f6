"""Single decisions of lineage. test_tracker has whole conversations."""

from __future__ import annotations

from support.lineage import SYSTEM, said, user
from weft_gateway.programs.lineage.fingerprint import Fingerprint
from weft_gateway.programs.lineage.marks import Known, Mark, State
from weft_gateway.programs.lineage.rules import EVIDENCE_BYTES, How, decide

CALL = Fingerprint("t", {"messages": [SYSTEM, user("a"), said("b"), user("c")]})
NOW = 100.0


def mark(program: str, state: int = State.RUNS, thread: str = "main", at_s: float = 99.0) -> Mark:
    return Mark(program, thread, state, at_s)


def verdict(marks, pieces=None, folded=None):
    return decide(CALL, Known(marks, folded or {}), pieces or {}, "new", NOW)


def test_unknown_call_begins_a_program_and_marks_its_end():
    found = verdict({})
    assert (found.how, found.program, found.thread) == (How.NEW, "new", "main")
    assert [entry.fingerprint for entry in found.entries] == [CALL.points[-1]]


def test_extended_mark_does_not_match():
    assert verdict({CALL.points[1]: [mark("p", State.EXTENDED)]}).how is How.NEW
    assert verdict({CALL.points[1]: [mark("p")]}).how is How.EXTENDS


def test_all_ends_of_the_thread_are_marked_as_extended():
    ends = {CALL.points[2]: [mark("p", State.PROVEN)], CALL.points[1]: [mark("p")]}
    found = verdict(ends)
    gone_on = [e.fingerprint for e in found.entries if e.mark.state & State.EXTENDED]
    assert gone_on == [CALL.points[2], CALL.points[1]]


def test_thread_that_waited_longest_is_extended():
    found = verdict({CALL.points[1]: [mark("late"), mark("early", at_s=1.0)]})
    assert found.program == "early"


def test_thread_with_another_answer_matches_only_if_it_is_the_only_one():
    answered = [mark("p", State.ANSWERED), mark("q", State.ANSWERED)]
    assert verdict({CALL.points[1]: answered}).how is How.NEW
    assert verdict({CALL.points[1]: answered[:1]}).program == "p"


def test_repeated_first_call_is_another_program_unless_it_failed():
    end = CALL.points[-1]
    assert verdict({end: [mark("p")]}).how is How.NEW
    assert verdict({end: [mark("p", State.FAILED)]}).program == "p"


def test_evidence_needs_a_minimum_of_bytes_of_one_program():
    said_by = {n: [mark("p", State.SAID)] for n in range(2)}
    half = EVIDENCE_BYTES // 2
    assert verdict(said_by, {0: half}).how is How.NEW
    assert verdict(said_by, {0: half, 1: half}).program == "p"
    both = {0: [mark("p", State.SAID), mark("q", State.SAID)]}
    assert verdict(both, {0: 10 * half}).how is How.NEW
    assert verdict(both, {0: 10 * half}, {"q": "p"}).program == "p"


def test_evidence_outweighs_the_end_of_another_thread():
    marks = {CALL.points[1]: [mark("p")], 7: [mark("q", State.SAID, "t2")]}
    found = verdict(marks, {7: EVIDENCE_BYTES})
    assert (found.program, found.parent, found.how) == ("q", "t2", How.QUOTES)


def test_program_that_another_quotes_is_folded_into_it():
    marks = {CALL.points[2]: [mark("p", State.PROVEN)], 7: [mark("q", State.SAID)]}
    found = verdict(marks, {7: EVIDENCE_BYTES})
    assert (found.program, found.joined, found.folds) == ("p", (("q", "main"),), (("q", "p"),))
