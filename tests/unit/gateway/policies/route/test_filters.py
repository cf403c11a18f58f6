"""Filters: replicas that can take a call."""

from __future__ import annotations

import pytest
from weft_gateway.model import Intake, Program, ProgramKey, ReplicaView, RouteRequest
from weft_gateway.policies.route.filters import rejection


def replica(models=("m",), up=True):
    return ReplicaView("r0", frozenset(models), up, 0)


def request(model="m", avoid=()):
    return RouteRequest(model, 1, None, (), frozenset(avoid))


def test_only_healthy_replicas_stay():
    assert rejection(request(), replica()) == ""
    assert rejection(request(), replica(up=False)) == "healthy"


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
    assert rejection(request(model), replica(models)) == ("" if keeps else "model")


def test_replica_that_failed_this_call_is_rejected():
    assert rejection(request(avoid=["r1"]), replica()) == ""
    assert rejection(request(avoid=["r0"]), replica()) == "not_avoided"


@pytest.mark.parametrize(
    ("intake", "home", "keeps"),
    [
        (Intake.ALL, "", True),
        (Intake.HOMES, "r0", True),
        (Intake.HOMES, "r1", False),
        (Intake.HOMES, "", False),
        (Intake.NONE, "r0", False),
    ],
)
def test_draining_replica_takes_calls_of_its_programs(intake, home, keeps):
    view = ReplicaView("r0", frozenset(), True, 0, intake)
    program = Program(ProgramKey("t", "p"), 0.0, home=home)
    why = rejection(RouteRequest("m", 1, program, (view,), frozenset()), view)
    assert why == ("" if keeps else "draining")
