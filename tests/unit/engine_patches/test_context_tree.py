"""Blocks that contexts share count once, whatever contexts come, grow, are edited and go."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st
from weft_engine.context_tree import HELD, KEPT, ContextTree


def chain(text: str) -> list[bytes]:
    """One block for each letter, with a hash that covers the letters before it."""
    return [sha256(text[: end + 1].encode()).digest() for end in range(len(text))]


def union(texts: list[tuple[str, int]]) -> int:
    """The distinct beginnings of texts, and their blocks without hashes."""
    begun = {text[: end + 1] for text, _ in texts for end in range(len(text))}
    return len(begun) + sum(tail for _, tail in texts)


def test_a_shared_beginning_counts_once():
    tree = ContextTree()
    one, two = tree.add(chain("systemA"), 7), tree.add(chain("systemBB"), 9)
    assert tree.adds([one, two], KEPT) == 6 + 1 + 3
    tree.hold(one, KEPT)
    assert (tree.adds([two], KEPT), tree.used) == (3, [7, 0])
    tree.hold(two, KEPT)
    tree.drop(one)
    assert tree.used == [9, 0]
    assert tree.violations() == []


def test_a_context_shrinks_after_an_edit():
    tree = ContextTree()
    one = tree.add(chain("a long history"), 14)
    tree.hold(one, HELD)
    assert tree.shared(one, chain("a long story")) == 7
    tree.move(one, chain("a short one"), 11)
    assert tree.used == [0, 11]
    tree.move(one, chain("a"), 1)
    assert (tree.used, one.depth) == ([0, 1], 1)


TEXTS = st.text("ab", max_size=6)
EVENTS = st.lists(
    st.tuples(st.sampled_from("+-mhrHR"), st.integers(0, 5), TEXTS, st.integers(0, 2)), max_size=60
)


@given(EVENTS)
def test_the_sums_are_those_of_all_distinct_beginnings(events):
    tree, known = ContextTree(), {}
    for what, number, text, tail in events:
        blocks = len(text) + tail
        if what == "+" and number not in known:
            known[number] = [tree.add(chain(text), blocks), text, tail, {KEPT: 0, HELD: 0}]
        if number not in known:
            continue
        context, _, _, reasons = one = known[number]
        kind = KEPT if what in "hr" else HELD
        if what == "-":
            tree.drop(known.pop(number)[0])
        elif what == "m":
            tree.move(context, chain(text), blocks)
            one[1:3] = text, tail
        elif what in "hH":
            tree.hold(context, kind)
            reasons[kind] += 1
        elif what in "rR" and reasons[kind]:
            tree.release(context, kind)
            reasons[kind] -= 1
        assert tree.violations() == []
        for kind in (KEPT, HELD):
            counted = [(text, tail) for _, text, tail, why in known.values() if why[kind]]
            assert tree.used[kind] == union(counted)
            every = union([(text, tail) for _, text, tail, _ in known.values()])
            assert tree.adds([c for c, *_ in known.values()], kind) == every - union(counted)
        for context, text, *_ in known.values():
            assert context.depth == len(text)
            common = next((n for n in range(7) if "abba"[:n] != text[:n]), 7) - 1
            assert tree.shared(context, chain("abba")) == min(common, len(text), 4)
