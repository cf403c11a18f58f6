"""Settings with a fixed set of values."""

from __future__ import annotations

from enum import StrEnum


class Admission(StrEnum):
    """Whether calls wait in the gateway for KV memory."""

    AUTO = "auto"
    OFF = "off"


class Tuning(StrEnum):
    """When the gateway tunes alpha and the options of `slack`. `paper` is HexGen-Flow's rule."""

    PAPER = "paper"
    SLOWDOWN = "slowdown"
    OFF = "off"
