"""Settings with a fixed set of values."""

from __future__ import annotations

from enum import StrEnum


class Balancer(StrEnum):
    """How the gateway selects a replica. `locality` is Agentix Algorithm 2, `work` HexGen-Flow's
    equation 4, `power_of_two` Ray's; `soonest` is for replicas of unequal speed.
    """

    LOCALITY = "locality"
    ROUND_ROBIN = "round_robin"
    LEAST_USED = "least_used"
    WORK = "work"
    SOONEST = "soonest"
    POWER_OF_TWO = "power_of_two"


class Admission(StrEnum):
    """Whether calls wait in the gateway for KV memory."""

    AUTO = "auto"
    OFF = "off"


class Tuning(StrEnum):
    """When the gateway tunes alpha and the options of `slack`. `paper` is HexGen-Flow's rule."""

    PAPER = "paper"
    SLOWDOWN = "slowdown"
    OFF = "off"
