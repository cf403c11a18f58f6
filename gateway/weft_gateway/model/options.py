"""Settings with a fixed set of values."""

from __future__ import annotations

from enum import StrEnum


class Balancer(StrEnum):
    """How the gateway selects a replica. `locality` is Agentix Algorithm 2."""

    LOCALITY = "locality"
    ROUND_ROBIN = "round_robin"
    LEAST_USED = "least_used"


class Admission(StrEnum):
    """Whether calls wait in the gateway for KV memory."""

    AUTO = "auto"
    OFF = "off"
