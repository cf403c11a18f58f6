"""Chains and pieces."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.lineage import SYSTEM, called, result, said, user
from weft_gateway.programs.lineage.canonical import said_in
from weft_gateway.programs.lineage.fingerprint import MAX_PIECES, Fingerprint, keys, pieces


def prompt(*messages, tenant="t", **body):
    return Fingerprint(tenant, {"model": "m", "messages": list(messages), **body})


def test_longer_conversation_has_all_points_of_a_shorter_one():
    turns = [SYSTEM, user("a" * 700), called("f", x=1), result("1"), said("b"), user("c" * 700)]
    full = prompt(*turns)
    for length in range(1, len(turns)):
        part = prompt(*turns[:length])
        assert part.points == full.points[:length]
        (atoms,) = said_in({"choices": [{"message": turns[length]}]})
        if turns[length]["role"] == "assistant":
            assert part.after(atoms).point == full.points[length]


def test_points_differ_by_tenant_model_and_tools():
    same = (SYSTEM, user("a"))
    points = {
        prompt(*same).points[-1],
        prompt(*same, tenant="u").points[-1],
        prompt(*same, model="n").points[-1],
        prompt(*same, tools=[{"name": "f"}]).points[-1],
    }
    assert len(points) == 4


@settings(deadline=None)
@given(st.text(min_size=1, max_size=3000), st.text(max_size=3000))
def test_continued_text_contains_the_end_of_the_shorter_one(text, more):
    first, then = Fingerprint("t", {"prompt": text}), Fingerprint("t", {"prompt": text + more})
    end = first.end()
    if end is None:
        return
    if end.cut:
        assert then.beginning(then.cuts[end.cut], end.length) == end.point
    if more.rstrip() == more:
        assert first.grown(more) == then.end()


def test_empty_request_has_no_end():
    for body in ({}, {"messages": []}, {"prompt": ""}, {"messages": [user(" ")]}):
        assert Fingerprint("t", body).end() is None


def test_turn_begins_after_the_models_last_message():
    assert prompt(SYSTEM, user("a")).turn == 0
    assert prompt(SYSTEM, user("a"), said("b"), user("c"), user("d")).turn == 3
    assert prompt(SYSTEM, user("a"), called("f")).turn == 3


def test_pieces_are_equal_in_json_and_text():
    order = 'WebSurfer, look for "sunset tours" in the whole of Maui. Check the prices of each one'
    instructed = pieces(
        [[("a", f'{{"speaker": "x", "order": "{order}"}}'.replace('"sun', '\\"sun'))]]
    )
    quoted = pieces([[("u", f"assistant: {order}\n\nuser: go on")]])
    assert b"Check the prices of each one" in set(instructed) & set(quoted)


def test_pieces_are_bounded_and_the_last_are_kept():
    body = {"prompt": "".join(f"this is the line of number {n}\n" for n in range(20_000))}
    found = Fingerprint("t", body).recent()
    assert len(found) <= MAX_PIECES
    last = Fingerprint("t", {"prompt": "this is the line of number 19999"}).recent()
    assert set(last) <= set(found)
    first = pieces([[("u", "this is the line of number 0")]])
    assert {*keys(first)} <= {*Fingerprint("t", body).own().pieces}
