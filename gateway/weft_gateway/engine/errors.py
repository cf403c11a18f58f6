"""What can go wrong between the gateway and a replica, and what the client is told of it."""

from __future__ import annotations

from typing import ClassVar


class ReplicaError(Exception):
    """A replica failed a call. `code` and `status` are what the client sees, where the answer has
    not begun; the message is fit for a client and names no address."""

    code: ClassVar[str] = "replica_error"
    status: ClassVar[int] = 502


class ConnectFailed(ReplicaError):
    """No connection, and no byte of the request was sent: another replica can take the call."""

    code = "replica_unreachable"
    status = 503


class ReplicaClosed(ReplicaError):
    """The connection ended before the answer did."""

    code = "replica_closed"


class ReplicaLost(ReplicaError):
    """The replica is gone, though its connection has not been closed."""

    code = "replica_lost"


class ReplicaGarbage(ReplicaError):
    """What came is not HTTP."""

    code = "replica_garbage"


class ReplicaBadAnswer(ReplicaError):
    """What came is HTTP, and no answer of an engine."""

    code = "replica_bad_answer"


class ReplicaWrongCall(ReplicaError):
    """The answer's report names another call: the answer may be another client's."""

    code = "replica_wrong_call"


class ReplicaAnswerTooLarge(ReplicaError):
    """The answer has more bytes than the gateway keeps."""

    code = "replica_answer_too_large"


class ReplicaFault(ReplicaError):
    """The replica answered 5xx. The client gets that answer as it is: this only marks."""

    code = "replica_5xx"


class ReplicaTimeout(ReplicaError):
    """The first byte, or the next one, took too long."""

    code = "replica_timeout"
    status = 504


class ShuttingDown(ReplicaError):
    """No fault of the replica: the gateway ends before the answer does."""

    code = "shutting_down"
    status = 503


class ClientGone(Exception):
    """The client closed its connection before the answer was complete."""
