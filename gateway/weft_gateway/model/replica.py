"""The policies' view of replicas."""

from __future__ import annotations

from weft_gateway.model.record import record


@record
class ReplicaView:
    """A snapshot of one replica. in_flight: its open calls, as known to this gateway: its own calls
    are exact, other gateways' are as of the last round trip to the table.
    """

    name: str
    models: frozenset[str]
    healthy: bool
    in_flight: int
