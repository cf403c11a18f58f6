"""The three parts of a router. Each maps a snapshot to a value and is stateless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

from weft_gateway.model import ReplicaView, RouteRequest


class Filter(Protocol):
    """Removes replicas that cannot take the call."""

    @property
    def name(self) -> str:
        """Name of the filter in the explanation of a rejection."""
        ...

    def keeps(self, request: RouteRequest, replica: ReplicaView) -> bool:
        """Whether the replica stays."""
        ...


class Scorer(Protocol):
    """Rates each replica for a call."""

    @property
    def name(self) -> str:
        """Name of the scorer in the explanation of a score."""
        ...

    def scores(self, request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        """Return scores in [0, 1] by replica name; higher is better."""
        ...


class Picker(Protocol):
    """Chooses one replica from the totals."""

    def pick(self, totals: Mapping[str, float], ordinal: int, rng: Random) -> str:
        """Return the chosen name. `totals` has at least one entry; `ordinal` counts calls."""
        ...
