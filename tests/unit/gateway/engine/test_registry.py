"""The replicas as policies and clients see them."""

from time import monotonic

import pytest
from weft_gateway.engine.errors import ConnectFailed, ReplicaFault, ShuttingDown
from weft_gateway.engine.pool import Timeouts
from weft_gateway.engine.registry import Registry
from weft_gateway.model import Intake, PromptPrefix

URLS = {"r0": "http://127.0.0.1:8001", "r1": "http://127.0.0.1:8002/engine"}


@pytest.fixture
def registry() -> Registry:
    made = Registry(URLS, Timeouts(1, 1, 1), api_key="sk-replica")
    for replica in made:
        replica.circuit = replica.circuit.checked(True)
    return made


def test_replicas_keep_their_names_and_order(registry: Registry) -> None:
    assert [replica.name for replica in registry] == ["r0", "r1"]
    views = registry.views({"r1": 3})
    assert [(view.name, view.healthy, view.in_flight) for view in views] == [
        ("r0", True, 0),
        ("r1", True, 3),
    ]


def test_models_are_the_union_with_the_first_description(registry: Registry) -> None:
    registry["r0"].learn([{"id": "a", "n": 0}])
    registry["r1"].learn([{"id": "a", "n": 1}, {"id": "b"}])
    assert registry.models() == {"a": {"id": "a", "n": 0}, "b": {"id": "b"}}


def test_model_is_unknown_if_no_replica_has_it(registry: Registry) -> None:
    assert registry.knows("a")  # No replica has listed its models.
    registry["r0"].learn([{"id": "a"}])
    assert registry.knows("b")  # r1 may serve it.
    registry["r1"].learn([{"id": "c"}])
    assert not registry.knows("b")
    assert registry.knows("c")


def test_dead_replica_cannot_serve_an_unknown_model(registry: Registry) -> None:
    registry["r0"].learn([{"id": "a"}])
    registry.failed("r1", ConnectFailed())
    assert not registry.knows("b")
    registry.failed("r0", ConnectFailed())
    assert registry.knows("a")  # A model of a dead replica is still known.


def test_calls_go_to_healthy_replicas_or_else_to_live_ones(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    def able() -> list[str]:
        return [replica.name for replica in registry.able()]

    def last_resort() -> list[bool]:
        return [view.healthy for view in registry.last_resort({"r0": 2})]

    assert able() == ["r0", "r1"]
    for _ in range(3):
        registry.failed("r0", ReplicaFault("The replica answered 500."))
    assert able() == ["r1"]
    assert [view.healthy for view in registry.views({})] == [False, True]
    assert last_resort() == [True, True]
    for _ in range(3):
        registry.failed("r1", ShuttingDown("The gateway is shutting down."))
    assert able() == ["r1"]
    registry.failed("r1", ConnectFailed("Refused\nhere."))
    assert able() == ["r0"]
    assert last_resort() == [True, False]
    registry.failed("r0", ConnectFailed("Refused."))
    assert (able(), last_resort()) == ([], [False, False])
    assert [record.message for record in caplog.records] == [
        "replica r0 is out: The replica answered 500. (replica_5xx)",
        "replica r1 is out: Refused\\nhere. (replica_unreachable)",
    ]


def test_the_only_replica_of_a_model_gets_calls_although_they_fail(registry: Registry) -> None:
    registry["r0"].learn([{"id": "a"}])
    registry["r1"].learn([{"id": "b"}])
    for _ in range(3):
        registry.failed("r0", ReplicaFault("The replica answered 500."))
    assert [replica.name for replica in registry.able()] == ["r1", "r0"]
    registry["r1"].learn([{"id": "a"}, {"id": "b"}])
    assert [replica.name for replica in registry.able()] == ["r1"]


def test_unreachable_replica_loses_its_recorded_prefixes(registry: Registry) -> None:
    prefix = PromptPrefix((1, 2), 512)
    registry.prefixes.room("r0", 9000)
    registry.prefixes.sent("r0", prefix)
    registry.failed("r0", ReplicaFault())
    shared = registry.prefixes.shared(prefix, ["r0", "r1"])
    assert shared is not None
    assert shared.tokens == {"r0": 1024, "r1": 0}
    registry.failed("r0", ConnectFailed())
    assert registry.prefixes.shared(prefix, ["r0", "r1"]) is None


def test_views_tell_which_calls_a_replica_takes(registry: Registry) -> None:
    first = registry.views({})[0]
    assert first.intake is Intake.ALL
    assert registry.views({})[0] is first
    registry["r0"].homes_until = monotonic() + 3600
    assert registry.views({})[0].intake is Intake.HOMES
    assert registry.last_resort({})[0].intake is Intake.HOMES
    registry["r0"].homes_until = monotonic()
    assert registry.views({})[0].intake is Intake.NONE
