"""Who gives way to whom."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine_patches.victims import Candidate, choose_victims


def c(name, queue, order=0, tokens=0, displaced=0):
    return Candidate(name, queue, order, tokens, displaced)


def test_the_worst_queue_goes_first_then_the_least_progress():
    running = [c("a", 1, 0, 5), c("b", 3, 1, 90), c("c", 3, 2, 10)]
    assert choose_victims([c("w", 0)], running, 0, 3) == ["c"]
    assert choose_victims([c("w", 0), c("x", 0), c("y", 0)], running, 0, 3) == ["c", "b", "a"]


def test_free_slots_are_used_before_anybody_is_displaced():
    assert choose_victims([c("w", 0), c("x", 0)], [c("a", 5)], 2, 3) == []
    assert choose_victims([c("w", 0), c("x", 0)], [c("a", 5)], 1, 3) == ["a"]


def test_an_equal_queue_does_not_displace():
    assert choose_victims([c("w", 2)], [c("a", 2)], 0, 3) == []


def test_calls_displaced_often_enough_are_left_alone():
    assert choose_victims([c("w", 0)], [c("a", 5, displaced=3), c("b", 1)], 0, 3) == ["b"]


QUEUES = st.lists(st.integers(0, 4), max_size=6)


@given(QUEUES, QUEUES, st.integers(0, 3))
def test_every_victim_is_worse_than_a_waiting_call_and_nobody_swaps_back(waiting, running, free):
    w = [c(f"w{i}", q, i) for i, q in enumerate(waiting)]
    r = [c(f"r{i}", q, i) for i, q in enumerate(running)]
    victims = choose_victims(w, r, free, 3)
    queue = {x.sequence: x.queue for x in w + r}
    claims = sorted(q for q in waiting)[free:]
    for claim, victim in zip(claims, victims, strict=False):
        assert claim < queue[victim]
    # The displaced ones could not displace those that took their place.
    taken = [c(f"t{i}", q) for i, q in enumerate(claims[: len(victims)])]
    assert choose_victims([c(v, queue[v]) for v in victims], taken, 0, 3) == []
