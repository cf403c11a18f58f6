"""Settings with a fixed set of values."""

from __future__ import annotations

from enum import StrEnum


class Admission(StrEnum):
    """Whether calls wait in the gateway for KV memory."""

    AUTO = "auto"
    OFF = "off"
