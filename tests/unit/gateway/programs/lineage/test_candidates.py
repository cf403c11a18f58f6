"""Marks along a call, from its end to its beginning."""

from __future__ import annotations

from support.lineage import SYSTEM, said, user
from weft_gateway.programs.lineage.candidates import candidates_of, root_of
from weft_gateway.programs.lineage.fingerprint import Fingerprint
from weft_gateway.programs.lineage.marks import Known, Mark, State
from weft_gateway.programs.lineage.rules import left


def mark(program: str, state: int = State.RUNS) -> Mark:
    return Mark(program, "main", state, 1.0)


def prompt(*messages):
    return Fingerprint("t", {"messages": list(messages)})


def test_nearest_mark_comes_first():
    call = prompt(SYSTEM, user("a"), said("b"), user("c"))
    known = Known(
        {
            call.points[0]: [mark("first")],
            call.points[1]: [mark("folded"), mark("own")],
            call.points[3]: [mark("same")],
        },
        {"folded": "own"},
    )
    found = list(candidates_of(call, known))
    assert [c.mark.program for c in found] == ["same", "folded", "own", "first"]
    assert [c.whole for c in found] == [True, False, False, False]
    assert [c.answered for c in found] == [False, True, True, False]
    assert root_of(mark("folded"), known) == "own"


def test_end_of_an_answer_is_never_the_whole_call():
    call = prompt(user("a"), said("b"))
    known = Known({call.points[-1]: [mark("p", State.ANSWER)]}, {})
    assert [c.whole for c in candidates_of(call, known)] == [False]


def test_text_finds_only_marks_of_its_prefixes():
    texts = ["x" * 600, "x" * 500 + "y" * 100, "x" * 700]
    marks: dict[int, list[Mark]] = {}
    for text in texts:
        for entry in left(
            Fingerprint("t", {"prompt": text}).end(), mark(text[-1] + str(len(text)))
        ):
            marks.setdefault(entry.fingerprint, []).append(entry.mark)
    found = candidates_of(Fingerprint("t", {"prompt": "x" * 900}), Known(marks, {}))
    assert [c.mark.program for c in found] == ["x700", "x600"]
