"""Rules for preemption."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from weft_engine.preemption_rules import Candidate, Claim, meet_claims


def claim(sequence: str, queue: int, entry: int = 0, rank: float = 0.0, blocks: int = 0) -> Claim:
    return Claim(sequence, (queue, rank, entry), blocks)


def candidate(
    sequence: str, queue: int, entry: int = 0, rank: float = 0.0, **costs: int
) -> Candidate:
    return Candidate(sequence, (queue, rank, entry), **costs)


def choose(waiting: list[Claim], running: list[Candidate], **options: Any) -> list[str]:
    settings = {"free_slots": 0, "free_blocks": 10**6, "max_displacements": 3, **options}
    waiting = sorted(waiting, key=lambda c: c.rank)
    met = meet_claims(waiting, running, **settings)
    return [victim for _, victims in met for victim in victims]


def test_the_worst_queue_goes_first_then_the_least_waste():
    running = [candidate("a", 1, waste=5), candidate("b", 3, waste=90), candidate("c", 3, waste=10)]
    assert choose([claim("w", 0)], running) == ["c"]
    assert choose([claim("w", 0), claim("x", 0), claim("y", 0)], running) == ["c", "b", "a"]


def test_free_slots_are_used_before_any_preemption():
    waiting = [claim("w", 0), claim("x", 0)]
    assert choose(waiting, [candidate("a", 5)], free_slots=2) == []
    assert choose(waiting, [candidate("a", 5)], free_slots=1) == ["a"]


def test_an_equal_queue_does_not_preempt():
    assert choose([claim("w", 2)], [candidate("a", 2)]) == []


def test_calls_are_preempted_at_most_max_times():
    running = [candidate("a", 5, preemptions=3), candidate("b", 1)]
    assert choose([claim("w", 0)], running) == ["b"]


def test_with_a_slot_free_blocks_are_made_free():
    running = [candidate("a", 2, blocks=4), candidate("b", 3, blocks=2)]
    options = {"free_slots": 4, "free_blocks": 1}
    assert choose([claim("w", 0, blocks=3)], running, **options) == ["b"]
    assert choose([claim("w", 0, blocks=4)], running, **options) == ["b", "a"]


def test_no_call_is_preempted_for_a_claim_that_still_would_not_fit():
    running = [candidate("a", 2, blocks=4), candidate("b", 0, blocks=50)]
    assert choose([claim("w", 0, blocks=9)], running, free_blocks=1) == []


def test_a_claim_that_cannot_be_met_stops_those_behind_it():
    waiting = [claim("big", 0, 0, blocks=99), claim("small", 0, 1, blocks=1)]
    assert choose(waiting, [candidate("a", 5, blocks=5)], free_blocks=0) == []


QUEUES = st.lists(st.integers(0, 4), max_size=6)


@given(QUEUES, QUEUES, st.integers(0, 3))
def test_every_victim_is_worse_than_a_waiting_call_and_none_swaps_back(waiting, running, free):
    claims = [claim(f"w{i}", q, i) for i, q in enumerate(waiting)]
    candidates = [candidate(f"r{i}", q, i) for i, q in enumerate(running)]
    victims = choose(claims, candidates, free_slots=free)
    queue = {c.sequence: c.rank[0] for c in candidates}
    met = sorted(waiting)[free:]
    for one, victim in zip(met, victims, strict=False):
        assert one < queue[victim]
    # The preempted calls could not preempt those that took their places.
    taken = [candidate(f"t{i}", q) for i, q in enumerate(met[: len(victims)])]
    assert choose([claim(v, queue[v]) for v in victims], taken) == []


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=6),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=6),
    st.integers(0, 2),
    st.integers(0, 9),
)
def test_no_call_is_preempted_without_need(waiting, running, slots, blocks):
    claims = [claim(f"w{i}", q, i, blocks=b) for i, (q, b) in enumerate(waiting)]
    candidates = [candidate(f"r{i}", q, i, blocks=b) for i, (q, b) in enumerate(running)]
    victims = choose(claims, candidates, free_slots=slots, free_blocks=blocks)
    assert len(set(victims)) == len(victims)
    freed = sum(c.blocks for c in candidates if c.sequence in victims)
    room, left = slots + len(victims), blocks + freed
    admitted = 0
    for one in sorted(claims, key=lambda c: c.rank):
        if room < 1 or left < one.blocks:
            break
        room, left, admitted = room - 1, left - one.blocks, admitted + 1
    without = 0
    room, left = slots, blocks
    for one in sorted(claims, key=lambda c: c.rank):
        if room < 1 or left < one.blocks:
            break
        room, left, without = room - 1, left - one.blocks, without + 1
    assert admitted > without or not victims
