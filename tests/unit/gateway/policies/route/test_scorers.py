"""Scores of replicas, from 0 to 1."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.model import Program, ProgramKey, ReplicaView, RouteRequest, Shared
from weft_gateway.policies.route.scorers import home, last_replica, least_used, shared_prefix


def replicas(*in_flight):
    return [ReplicaView(f"r{i}", frozenset(), True, n) for i, n in enumerate(in_flight)]


def request(tokens=5000, home_=None):
    program = None if home_ is None else Program(ProgramKey("t", "p"), 0.0, home=home_)
    return RouteRequest("m", tokens, program, ())


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=9))
def test_fewer_calls_in_flight_score_higher(counts):
    scores = least_used(request(), replicas(*counts))
    assert all(0.0 < score <= 1.0 for score in scores.values())
    assert {i for i, n in enumerate(counts) if n == min(counts)} == {
        i for i in range(len(counts)) if scores[f"r{i}"] == max(scores.values())
    }


def test_home_scores_one_only_for_the_home_of_a_long_call():
    scores = home(threshold_tokens=2048)
    assert scores(request(2049, "r1"), replicas(0, 0)) == {"r0": 0.0, "r1": 1.0}
    assert scores(request(2048, "r1"), replicas(0, 0)) == {"r0": 0.0, "r1": 0.0}
    assert scores(request(2049, ""), replicas(0, 0)) == {"r0": 0.0, "r1": 0.0}
    assert scores(request(2049), replicas(0, 0)) == {"r0": 0.0, "r1": 0.0}


def shared(*tokens, prompt=10_000):
    sent = Shared({f"r{i}": n for i, n in enumerate(tokens)})
    return RouteRequest("m", prompt, None, (), shared=sent)


PREFIX = shared_prefix(call_tokens=1000)


def test_unknown_shared_prefix_scores_zero():
    assert PREFIX(request(), replicas(0, 9)) == {"r0": 0.0, "r1": 0.0}


def test_shared_prefix_scores_its_saving_over_the_least_used():
    assert PREFIX(shared(8000, 0), replicas(0, 0)) == {"r0": 0.8, "r1": 0.0}
    assert PREFIX(shared(8000, 2000), replicas(0, 0)) == {"r0": 0.6, "r1": 0.0}
    assert PREFIX(shared(8000), replicas(0, 0)) == {"r0": 0.8, "r1": 0.0}


def test_longer_queue_lowers_the_score_to_zero():
    assert PREFIX(shared(8000, 0), replicas(5, 0)) == {"r0": 0.3, "r1": 0.0}
    assert PREFIX(shared(8000, 0), replicas(8, 0)) == {"r0": 0.0, "r1": 0.0}
    assert PREFIX(shared(8000, 0), replicas(25, 20)) == {"r0": 0.3, "r1": 0.0}


def test_shorter_queue_scores_higher_with_equal_prefixes():
    scores = PREFIX(shared(8000, 8000, 0), replicas(3, 2, 0))
    assert scores == {"r0": 0.5, "r1": 0.6, "r2": 0.0}


LAST = last_replica(threshold_tokens=2000, call_tokens=500)


def after(last, tokens=1000, home_=""):
    program = Program(ProgramKey("t", "p"), 0.0, home=home_, last_replica=last)
    return RouteRequest("m", tokens, program, ())


def test_last_replica_of_a_short_call_scores_its_prompt_minus_its_queue():
    assert LAST(after("r1"), replicas(0, 0)) == {"r0": 0.0, "r1": 1.0}
    assert LAST(after("r1"), replicas(0, 1)) == {"r0": 0.0, "r1": 0.5}
    assert LAST(after("r1"), replicas(0, 2)) == {"r0": 0.0, "r1": 0.0}
    assert LAST(after("r1", 2000), replicas(20, 23)) == {"r0": 0.0, "r1": 0.25}


def test_last_replica_scores_zero_if_it_is_unknown_or_gone():
    nowhere = {"r0": 0.0, "r1": 0.0}
    assert LAST(request(1000), replicas(0, 0)) == nowhere
    assert LAST(after(""), replicas(0, 0)) == nowhere
    assert LAST(after("gone"), replicas(0, 0)) == nowhere


def test_last_replica_affects_a_long_call_only_if_it_chooses_the_home():
    assert LAST(after("r1", 4000, "r0"), replicas(0, 0)) == {"r0": 0.0, "r1": 0.0}
    # No call above the threshold has run yet, so at most that many tokens are cached.
    assert LAST(after("r1", 4000), replicas(0, 0)) == {"r0": 0.0, "r1": 0.5}
    assert LAST(after("r1", 4000, "gone"), replicas(0, 1)) == {"r0": 0.0, "r1": 0.375}
    everything_is_long = last_replica(threshold_tokens=0, call_tokens=500)
    assert everything_is_long(after("r1", 4000), replicas(0, 0)) == {"r0": 0.0, "r1": 0.0}


@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(-1, 300)), min_size=2, max_size=8),
    st.integers(0, 30_000),
)
def test_best_score_has_the_largest_saving(rows, prompt):
    tokens, in_flight = zip(*rows, strict=True)
    scores = PREFIX(shared(*tokens, prompt=prompt), replicas(*in_flight))
    assert all(0.0 <= score <= 1.0 for score in scores.values())
    worth = [n - 1000 * max(0, calls) for n, calls in rows]
    best = scores[f"r{worth.index(max(worth))}"]
    assert best == max(scores.values())
