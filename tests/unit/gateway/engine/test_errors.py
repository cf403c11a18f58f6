"""What failures of replicas mean to clients."""

from gateway.engine.errors import (
    ConnectFailed,
    ReplicaBadAnswer,
    ReplicaClosed,
    ReplicaError,
    ReplicaFault,
    ReplicaGarbage,
    ReplicaTimeout,
)


def test_each_failure_has_its_status_and_code() -> None:
    kinds: list[type[ReplicaError]] = [
        ConnectFailed,
        ReplicaClosed,
        ReplicaGarbage,
        ReplicaBadAnswer,
        ReplicaFault,
        ReplicaTimeout,
    ]
    assert [(kind.status, kind.code) for kind in kinds] == [
        (503, "replica_unreachable"),
        (502, "replica_closed"),
        (502, "replica_garbage"),
        (502, "replica_bad_answer"),
        (502, "replica_5xx"),
        (504, "replica_timeout"),
    ]
