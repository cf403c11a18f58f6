"""A sorted set whose ranks change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft_engine.rank_index import RankIndex

NAMES = st.sampled_from("abcdefg")
EVENTS = st.one_of(
    st.tuples(st.just("add"), NAMES, st.just(0)),
    st.tuples(st.just("discard"), NAMES, st.just(0)),
    st.tuples(st.just("moves"), NAMES, st.integers(0, 5)),
    st.tuples(st.just("read"), st.just(""), st.integers(0, 4)),
)


@given(st.lists(EVENTS, max_size=60))
def test_it_gives_what_sorting_all_of_them_would_give(events):
    ranks = {name: (0, 0.0, place) for place, name in enumerate("abcdefg")}
    index, model = RankIndex(ranks.__getitem__), set()
    for event, name, number in [*events, ("read", "", 0)]:
        if event == "add":
            index.add(name)
            model.add(name)
        elif event == "discard":
            index.discard(name)
            model.discard(name)
        elif event == "moves":
            ranks[name] = (0, float(number), ranks[name][2])
            index.invalidate([name])
        else:
            wanted = sorted(model, key=ranks.__getitem__)
            assert list(index.ordered(number)) == wanted[number:]
            assert len(index) == len(model)


def test_a_rank_is_read_again_only_after_an_invalidation():
    asked: list[str] = []

    def rank(name: str) -> tuple[int, float, int]:
        asked.append(name)
        return (0, 0.0, ord(name))

    index = RankIndex(rank)
    for name in "abc":
        index.add(name)
    asked.clear()
    assert list(index.ordered()) == ["a", "b", "c"]
    index.invalidate(["b", "unknown"])
    index.ordered()
    index.ordered()
    assert asked == ["b"]
