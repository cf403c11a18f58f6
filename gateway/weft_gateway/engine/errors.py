"""Errors between the gateway and a replica, and the client's view of them."""

from __future__ import annotations

from weft_gateway.engine.shapes import Fault


class ReplicaError(Exception):
    """A replica failed a call. The client receives `code` and `status` if the answer has not begun.
    The message is for clients and names no address.
    """

    code = "replica_error"
    status = 502


class ConnectFailed(ReplicaError):
    """The connection failed before the replica read any byte: another one can take the call."""

    code = "replica_unreachable"
    status = 503


class ReplicaClosed(ReplicaError):
    """The connection ended before the answer."""

    code = "replica_closed"


class ReplicaLost(ReplicaError):
    """The replica's process is gone, but its connection is still open."""

    code = "replica_lost"


class ReplicaGarbage(ReplicaError):
    """The answer is not HTTP."""

    code = "replica_garbage"


class ReplicaBadAnswer(ReplicaError):
    """The answer is HTTP, but not a valid answer of an engine."""

    code = "replica_bad_answer"


class ReplicaWrongCall(ReplicaError):
    """The report in the answer names another call: the answer may belong to another client."""

    code = "replica_wrong_call"


class ReplicaAnswerTooLarge(ReplicaError):
    """The answer exceeds the gateway's size limit."""

    code = "replica_answer_too_large"


class ReplicaFault(ReplicaError):
    """The replica answered 5xx. The client receives that answer unchanged; this error only records
    it.
    """

    code = "replica_5xx"


class ReplicaSaid(ReplicaFault):
    """The replica ended its stream with an error, which the client receives in its API's form."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.status = fault.status
        if fault.status < 500:
            self.code = "replica_4xx"


class ReplicaTimeout(ReplicaError):
    """The first byte or a later one exceeded its timeout."""

    code = "replica_timeout"
    status = 504


class Withdrawn(ReplicaError):
    """The gateway ends a call. Not a fault of the replica."""


class ShuttingDown(Withdrawn):
    """The gateway shuts down before the answer is complete."""

    code = "shutting_down"
    status = 503


class ProgramStopped(Withdrawn):
    """Someone has stopped the call's program. Clients do not repeat calls with this status."""

    code = "program_stopped"
    status = 403


class ClientGone(Exception):
    """The client closed its connection before the answer was complete."""
