"""The three parts of a router. Each gets a snapshot and returns a value; none keeps state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

from weft_gateway.model import ReplicaView, RouteRequest


class Filter(Protocol):
    """Removes replicas that cannot take the call."""

    @property
    def name(self) -> str:
        """What a rejection is explained by."""
        ...

    def keeps(self, request: RouteRequest, replica: ReplicaView) -> bool:
        """Whether the replica stays."""
        ...


class Scorer(Protocol):
    """Says how well each replica fits."""

    @property
    def name(self) -> str:
        """What a score is explained by."""
        ...

    def scores(self, request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        """Replica name to score in [0, 1]; higher is better."""
        ...


class Picker(Protocol):
    """Chooses one replica from the totals."""

    def pick(self, totals: Mapping[str, float], ordinal: int, rng: Random) -> str:
        """The chosen name. `totals` has at least one entry; `ordinal` counts calls."""
        ...
