"""How well a replica fits, in [0, 1]."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.model import Program, ProgramKey, ReplicaView, RouteRequest
from gateway.policies.route.scorers import Home, LeastInFlight


def replicas(*in_flight):
    return [ReplicaView(f"r{i}", frozenset(), True, n) for i, n in enumerate(in_flight)]


def request(tokens=5000, home=None):
    program = None if home is None else Program(ProgramKey("t", "p"), 0.0, home=home)
    return RouteRequest("m", tokens, program, ())


@given(st.lists(st.integers(-1, 10_000), min_size=2, max_size=9))
def test_fewer_calls_in_flight_score_higher_and_scores_are_fractions(counts):
    scores = LeastInFlight().scores(request(), replicas(*counts))
    assert all(0.0 < score <= 1.0 for score in scores.values())
    # A count below zero cannot be; it is taken for zero.
    best = min(max(0, n) for n in counts)
    assert {i for i, n in enumerate(counts) if max(0, n) == best} == {
        i for i in range(len(counts)) if scores[f"r{i}"] == max(scores.values())
    }


def test_home_is_one_for_the_home_of_a_long_call_and_nothing_else():
    home = Home(threshold_tokens=2048)
    assert home.scores(request(2049, "r1"), replicas(0, 0)) == {"r0": 0.0, "r1": 1.0}
    assert home.scores(request(2048, "r1"), replicas(0, 0)) == {"r0": 0.0, "r1": 0.0}
    assert home.scores(request(2049, ""), replicas(0, 0)) == {"r0": 0.0, "r1": 0.0}
    assert home.scores(request(2049), replicas(0, 0)) == {"r0": 0.0, "r1": 0.0}
