"""Candidate orders."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.planning import call, chain, static
from weft_bench.planner.orders import Lane, Order, lanes, orders
from weft_bench.planner.placing import Share
from weft_bench.planner.problem import operations
from weft_bench.planner.radix import build_tree
from weft_bench.planner.token_steps import Worker


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 5), st.integers(1, 12))
def test_turns_are_the_order_of_nested_sequences(lengths: list[int], block: int, rows: int) -> None:
    numbers = iter(range(sum(lengths)))
    sequences = [[next(numbers) for _ in range(length)] for length in lengths]
    lane = Lane.of(sequences, block, rows)
    turns = {(n, row): lane.turn(n, row) for n in range(sum(lengths)) for row in range(rows)}
    width = block or rows
    expected = [
        (number, row)
        for start in range(0, rows, width)
        for sequence in sequences
        for row in range(start, min(rows, start + width))
        for number in sequence
    ]
    assert sorted(turns, key=turns.__getitem__) == expected
    assert len(set(turns.values())) == len(turns)


def test_candidates_are_heliums_and_two_by_remaining_path() -> None:
    calls = chain()
    found = operations(calls, build_tree(calls))
    made = {one.name: one for one in orders(calls, Worker(8192), found, 16)}
    assert list(made) == [
        "prefix",
        "prefix, blocks of 8",
        "path",
        "levels",
        "levels, blocks of 8",
    ]
    assert made["prefix"].sequences == ((0,), (1,), (2,))
    assert made["levels"].sequences == ((0, 1), (2,))


def test_operators_with_the_longest_answers_ahead_come_first() -> None:
    calls = (
        call("short", static("s"), answer=10),
        call("long", static("l"), answer=90),
        call("early", static("e"), answer=50),
        call("end", static("d"), answer=60, needs=("early",)),
        call("last", static("x"), answer=5, needs=("long", "short", "end")),
    )
    found = operations(calls, build_tree(calls))
    made = {one.name: one for one in orders(calls, Worker(8192), found, 16)}
    # Tokens to an output: early 115, long 95, end 65, short 15, last 5.
    assert made["path"].sequences == ((2,), (1,), (3,), (0,), (4,))
    assert made["levels"].sequences == ((2,), (1, 3, 0), (4,))


def test_lane_has_the_operators_of_its_replica() -> None:
    shares = [Share((0, 2), (0,), ()), Share((1,), (1,), ())]
    made = lanes(Order("depth", ((0, 1), (2,)), 0), shares, 4, 2)
    assert [lane.sequences for lane in made] == [((0,), (2,)), ((1,),)]
    assert [lane.rows for lane in made] == [4, 4]
