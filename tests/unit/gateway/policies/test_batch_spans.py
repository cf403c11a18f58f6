"""The spans of replicas cover every position once, and neighbours stay together."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.policies.batch_spans import Spans


def played(count: int, turns: Sequence[str], able: Sequence[str]) -> dict[str, list[int]]:
    spans = Spans(count)
    taken: dict[str, list[int]] = {name: [] for name in able}
    while spans.left:
        for replica in turns:
            position = spans.take(replica, able)
            if position is not None:
                taken[replica].append(position)
    assert all(spans.take(replica, able) is None for replica in able)
    return taken


def test_two_replicas_take_one_half_each() -> None:
    taken = played(10, "ab", ["a", "b"])
    assert sorted(taken.values()) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_a_faster_replica_helps_the_slower_one() -> None:
    taken = played(100, "aaab", ["a", "b"])
    assert 60 <= len(taken["a"]) <= 90


def test_the_span_of_a_lost_replica_is_taken_over() -> None:
    spans = Spans(10)
    assert {spans.take("a", ["a", "b"]), spans.take("b", ["a", "b"])} == {0, 5}
    rest = [spans.take("a", ["a"]) for _ in range(8)]
    assert None not in rest
    assert spans.take("a", ["a"]) is None


@given(
    st.integers(0, 60),
    st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.sampled_from("abc"), min_size=1))),
)
def test_every_position_is_taken_once(count: int, turns: list[tuple[str, set[str]]]) -> None:
    spans = Spans(count)
    taken = [spans.take(replica, sorted(able | {replica})) for replica, able in turns]
    while spans.left:
        taken.append(spans.take("a", ["a"]))
    assert sorted(one for one in taken if one is not None) == list(range(count))
