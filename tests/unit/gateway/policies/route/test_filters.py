"""Filters: replicas that can take a call."""

from __future__ import annotations

import pytest
from weft_gateway.model import Intake, Program, ProgramKey, ReplicaView, RouteRequest
from weft_gateway.policies.route.filters import (
    healthy,
    holds_answer,
    not_avoided,
    not_draining,
    serves_model,
)


def replica(models=("m",), up=True):
    return ReplicaView("r0", frozenset(models), up, 0)


def request(model="m", avoid=()):
    return RouteRequest(model, 1, None, (), frozenset(avoid))


def test_only_healthy_replicas_stay():
    assert healthy(request(), replica())
    assert not healthy(request(), replica(up=False))


@pytest.mark.parametrize(
    ("model", "models", "keeps"),
    [
        ("m", {"m", "n"}, True),
        ("m", {"n"}, False),
        ("m", set(), True),  # not learned yet
        ("", {"n"}, True),  # the engine decides what no name means
    ],
)
def test_replica_of_another_model_is_rejected(model, models, keeps):
    assert serves_model(request(model), replica(models)) is keeps


def test_replica_that_failed_this_call_is_rejected():
    assert not_avoided(request(avoid=["r1"]), replica())
    assert not not_avoided(request(avoid=["r0"]), replica())


@pytest.mark.parametrize(("holder", "kept"), [("", {"r0", "r1"}), ("r1", {"r1"}), ("gone", set())])
def test_continued_answer_pins_its_call_to_the_storing_replica(holder, kept):
    replicas = (replica(), ReplicaView("r1", frozenset({"m"}), True, 0))
    asked = RouteRequest("m", 1, None, replicas, frozenset(), holder=holder)
    assert {r.name for r in replicas if holds_answer(asked, r)} == kept


@pytest.mark.parametrize(
    ("intake", "home", "holder", "keeps"),
    [
        (Intake.ALL, "", "", True),
        (Intake.HOMES, "r0", "", True),
        (Intake.HOMES, "r1", "", False),
        (Intake.HOMES, "", "", False),
        (Intake.NONE, "r0", "", False),
        (Intake.NONE, "", "r0", True),  # A stored answer exists only there.
        (Intake.NONE, "", "r1", False),
    ],
)
def test_draining_replica_takes_calls_of_its_programs_and_stored_answers(
    intake, home, holder, keeps
):
    view = ReplicaView("r0", frozenset(), True, 0, intake)
    program = Program(ProgramKey("t", "p"), 0.0, home=home)
    asked = RouteRequest("m", 1, program, (view,), frozenset(), holder=holder)
    assert not_draining(asked, view) is keeps
