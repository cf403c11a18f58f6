"""What is decided where the whole of a client's doings would be long to tell; see test_tracker."""

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


def test_nothing_known_is_a_new_program_that_leaves_its_end():
    found = verdict({})
    assert (found.how, found.program, found.thread) == (How.NEW, "new", "main")
    assert [entry.fingerprint for entry in found.entries] == [CALL.points[-1]]


def test_a_shared_beginning_is_nothing_once_its_thread_has_gone_on():
    assert verdict({CALL.points[1]: [mark("p", State.EXTENDED)]}).how is How.NEW
    assert verdict({CALL.points[1]: [mark("p")]}).how is How.EXTENDS


def test_going_on_is_marked_wherever_the_thread_ended():
    ends = {CALL.points[2]: [mark("p", State.PROVEN)], CALL.points[1]: [mark("p")]}
    found = verdict(ends)
    gone_on = [e.fingerprint for e in found.entries if e.mark.state & State.EXTENDED]
    assert gone_on == [CALL.points[2], CALL.points[1]]


def test_of_threads_at_one_place_the_one_that_waited_longest_goes_on():
    found = verdict({CALL.points[1]: [mark("late"), mark("early", at_s=1.0)]})
    assert found.program == "early"


def test_threads_that_were_answered_otherwise_do_not_go_on_unless_there_is_no_other():
    answered = [mark("p", State.ANSWERED), mark("q", State.ANSWERED)]
    assert verdict({CALL.points[1]: answered}).how is How.NEW
    assert verdict({CALL.points[1]: answered[:1]}).program == "p"


def test_the_same_question_from_nothing_known_is_another_program():
    end = CALL.points[-1]
    assert verdict({end: [mark("p")]}).how is How.NEW
    assert verdict({end: [mark("p", State.FAILED)]}).program == "p"


def test_evidence_needs_so_many_bytes_of_one_program():
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


def test_a_program_that_is_read_by_another_becomes_a_part_of_it():
    marks = {CALL.points[2]: [mark("p", State.PROVEN)], 7: [mark("q", State.SAID)]}
    found = verdict(marks, {7: EVIDENCE_BYTES})
    assert (found.program, found.joined, found.folds) == ("p", (("q", "main"),), (("q", "p"),))
