"""Decisions of Algorithm 2 and the other balancers."""

from __future__ import annotations

from collections import Counter
from random import Random

from weft_gateway.model import Intake, Program, ProgramKey, ReplicaView, RouteRequest, Shared
from weft_gateway.policies.route.registry import build


def replica(name, in_flight=0, healthy=True, models=("m",)):
    return ReplicaView(name, frozenset(models), healthy, in_flight)


def route(
    router, replicas, *, tokens=100, home="", last="", ordinal=0, model="m", avoid=(), seed=0,
    sent=None,
):  # fmt: skip
    key = ProgramKey("t", "p")
    program = Program(key, 0.0, home=home, last_replica=last) if home or last else None
    request = RouteRequest(
        model,
        tokens,
        program,
        tuple(replicas),
        frozenset(avoid),
        ordinal,
        shared=None if sent is None else Shared(sent),
    )
    return build(router, 2048).route(request, Random(seed))


def test_short_calls_go_to_the_least_used_replica_even_away_from_home():
    decision = route("locality", [replica("a", 3), replica("b", 1)], tokens=2048, home="a")
    assert (decision.replica, decision.sticky) == ("b", False)


def test_short_calls_stay_on_the_last_replica_unless_it_is_loaded():
    for in_flight, chosen, reason in ((4, "a", "last replica"), (5, "b", "least_used")):
        replicas = [replica("a", in_flight), replica("b", 1)]
        decision = route("locality", replicas, tokens=2000, last="a", home="b")
        assert (decision.replica, decision.sticky, decision.reason) == (chosen, False, reason)
        assert (decision.scores["last_replica"]["a"] > 0) == (chosen == "a")


def test_short_calls_leave_an_unhealthy_last_replica():
    replicas = [replica("a", healthy=False), replica("b", 9)]
    decision = route("locality", replicas, last="a")
    assert (decision.replica, decision.reason) == ("b", "least_used")


def test_new_home_is_the_last_replica_unless_it_is_loaded():
    for in_flight, chosen, reason in ((4, "a", "last replica"), (5, "b", "new home")):
        replicas = [replica("a", in_flight), replica("b", 1)]
        decision = route("locality", replicas, tokens=5000, last="a")
        assert (decision.replica, decision.reason, decision.new_home) == (chosen, reason, True)


def test_a_long_shared_prefix_outweighs_the_last_replica():
    replicas = [replica("a"), replica("b")]
    decision = route("locality", replicas, tokens=9000, last="a", sent={"b": 8000})
    assert (decision.replica, decision.reason) == ("b", "shared prefix")


def test_balancers_without_homes_ignore_the_last_replica():
    decision = route("least_used", [replica("a", 1), replica("b", 0)], last="a")
    assert (decision.replica, decision.reason) == ("b", "least_used")


def test_long_calls_go_to_a_busy_home():
    decision = route("locality", [replica("a", 50), replica("b", 0)], tokens=2049, home="a")
    assert (decision.replica, decision.sticky, decision.reason) == ("a", True, "home")


def test_long_calls_without_a_home_get_the_least_used_as_home():
    decision = route("locality", [replica("a", 3), replica("b", 1)], tokens=5000)
    assert (decision.replica, decision.sticky, decision.reason) == ("b", True, "new home")


def test_unhealthy_home_is_replaced():
    replicas = [replica("a", healthy=False), replica("b")]
    decision = route("locality", replicas, tokens=5000, home="a")
    assert decision.replica == "b"
    assert decision.eligible == {"b"}
    assert decision.rejected == {"a": "healthy"}


def test_least_used_ignores_homes():
    decision = route("least_used", [replica("a", 1), replica("b", 0)], tokens=9999, home="a")
    assert (decision.replica, decision.sticky) == ("b", False)


def test_round_robin_takes_turns():
    names = [
        route("round_robin", [replica("b"), replica("a")], ordinal=i).replica for i in range(4)
    ]
    assert names == ["a", "b", "a", "b"]


def test_ties_are_broken_by_the_random_stream():
    replicas = [replica("a"), replica("b")]
    counts = Counter(route("least_used", replicas, seed=s).replica for s in range(200))
    assert min(counts.values()) > 60
    assert route("least_used", replicas, seed=7) == route("least_used", replicas, seed=7)


def test_replicas_of_the_model_or_of_unknown_models_are_eligible():
    replicas = [replica("a", models=("x",)), replica("b", 5), replica("c", 9, models=())]
    decision = route("least_used", replicas)
    assert decision.replica == "b"
    assert decision.eligible == {"b", "c"}
    assert decision.rejected == {"a": "model"}


def test_replica_that_failed_this_call_is_avoided():
    decision = route("locality", [replica("a"), replica("b", 9)], avoid=["a"])
    assert (decision.replica, decision.rejected) == ("b", {"a": "not_avoided"})


def test_decision_without_eligible_replicas_has_the_reasons():
    decision = route("locality", [replica("a", healthy=False)], avoid=["a"])
    assert decision.replica == ""
    assert decision.rejected == {"a": "healthy"}


def test_scores_explain_the_choice_and_lie_between_0_and_1():
    decision = route("locality", [replica("a", 3), replica("b", 0)], tokens=5000, home="a")
    assert set(decision.scores) == {"home", "last_replica", "least_used"}
    for scores in decision.scores.values():
        assert all(0.0 <= score <= 1.0 for score in scores.values())


def test_picker_decides_without_scorers():
    decision = route("round_robin", [replica("a", 9), replica("b", 0)], tokens=9999, home="b")
    assert (decision.replica, decision.sticky, decision.reason) == ("a", False, "round_robin")
    assert decision.scores == {}


def test_unknown_home_is_replaced():
    decision = route("locality", [replica("a"), replica("b", 9)], tokens=5000, home="gone")
    assert (decision.replica, decision.sticky, decision.reason) == ("a", True, "new home")


def test_new_home_is_the_replica_with_the_shared_prefix():
    decision = route("locality", [replica("a", 3), replica("b", 1)], tokens=9000, sent={"a": 8000})
    assert (decision.replica, decision.reason, decision.new_home) == ("a", "shared prefix", True)
    assert 0 < decision.scores["shared_prefix"]["a"] <= 1
    assert decision.scores["shared_prefix"]["b"] == 0


def test_long_queue_outweighs_the_shared_prefix():
    decision = route("locality", [replica("a", 9), replica("b", 1)], tokens=9000, sent={"a": 2000})
    assert (decision.replica, decision.reason, decision.new_home) == ("b", "new home", True)


def test_shared_prefix_does_not_change_the_home():
    replicas = [replica("a", 3), replica("b", 1)]
    decision = route("locality", replicas, tokens=9000, home="b", sent={"a": 9000})
    assert (decision.replica, decision.reason, decision.new_home) == ("b", "home", False)


def test_new_home_is_set_only_by_long_calls_under_locality():
    assert not route("locality", [replica("a")], tokens=2048).new_home
    assert not route("least_used", [replica("a")], tokens=9000).new_home
    assert route("locality", [replica("a")], tokens=9000).new_home
    assert route("locality", [replica("a")], tokens=9000, home="gone").new_home


def test_balancers_without_homes_ignore_shared_prefixes():
    replicas = [replica("a", 3), replica("b", 1)]
    decision = route("least_used", replicas, tokens=9000, sent={"a": 8000})
    assert (decision.replica, set(decision.scores)) == ("b", {"least_used"})


def test_the_table_may_keep_a_long_call_on_a_draining_home():
    """The router may not know the home of a program that another gateway serves."""
    replicas = [
        ReplicaView("a", frozenset({"m"}), True, 0, Intake.HOMES),
        ReplicaView("b", frozenset({"m"}), False, 0, Intake.HOMES),
        ReplicaView("c", frozenset({"m"}), True, 0, Intake.NONE),
        replica("d", 9),
    ]
    decision = route("locality", replicas, tokens=5000)
    assert (decision.replica, decision.eligible, decision.homes) == ("d", {"d"}, {"a"})
    assert decision.rejected == {"a": "draining", "b": "healthy", "c": "draining"}
    decision = route("locality", replicas, tokens=5000, home="a")
    assert (decision.replica, decision.reason) == ("a", "home")
    assert not route("locality", replicas).homes  # A short call has no home.
