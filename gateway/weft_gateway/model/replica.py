"""Replicas as policies see them."""

from __future__ import annotations

from weft_gateway.model.record import record


@record
class ReplicaView:
    """A snapshot of one replica. in_flight: calls open on it, as far as this gateway knows (its
    own are exact, other gateways' are as old as the last round trip to the table)."""

    name: str
    models: frozenset[str]
    healthy: bool
    in_flight: int
