"""Pickers: from scores to one replica."""

from __future__ import annotations

from collections import Counter
from random import Random

from weft_gateway.policies.route.pickers import in_turn, max_score


def test_highest_total_wins():
    assert max_score({"a": 0.2, "b": 0.9, "c": 0.5}, 0, Random(0)) == "b"


def test_clear_winner_uses_no_random_number():
    rng = Random(3)
    before = rng.getstate()
    max_score({"a": 0.2, "b": 0.9}, 0, rng)
    assert rng.getstate() == before


def test_ties_are_broken_at_random_and_repeat_with_the_seed():
    totals = {"a": 1.0, "b": 0.5, "c": 1.0}
    picks = [max_score(totals, 0, Random(seed)) for seed in range(300)]
    counts = Counter(picks)
    assert set(counts) == {"a", "c"}
    assert min(counts.values()) > 100
    assert picks == [max_score(totals, 0, Random(seed)) for seed in range(300)]


def test_round_robin_does_not_depend_on_the_replicas_order():
    rng = Random(0)
    turns = [in_turn({"b": 0.0, "a": 0.0, "c": 0.0}, i, rng) for i in range(6)]
    assert turns == ["a", "b", "c", "a", "b", "c"]
