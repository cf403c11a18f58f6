"""Replica failures as clients see them."""

from weft_gateway.engine.errors import (
    ConnectFailed,
    ReplicaAnswerTooLarge,
    ReplicaBadAnswer,
    ReplicaClosed,
    ReplicaError,
    ReplicaFault,
    ReplicaGarbage,
    ReplicaLost,
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
        ReplicaLost,
        ReplicaAnswerTooLarge,
    ]
    assert [(kind.status, kind.code) for kind in kinds] == [
        (503, "replica_unreachable"),
        (502, "replica_closed"),
        (502, "replica_garbage"),
        (502, "replica_bad_answer"),
        (502, "replica_5xx"),
        (504, "replica_timeout"),
        (502, "replica_lost"),
        (502, "replica_answer_too_large"),
    ]
