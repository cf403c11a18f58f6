"""Stores the tuned values and the lock of the gateway that tunes. This one has a single gateway."""

from __future__ import annotations

from collections.abc import Mapping


class TuningStore:
    """The values of one gateway, whose process table is in memory. They are lost when it stops.

    All methods raise TableUnavailable without a change if the store is away.
    """

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._changes = 0

    async def read(self) -> tuple[str, Mapping[str, float]]:
        """Return the version of the values, "" before the first write, and the values."""
        return str(self._changes or ""), dict(self._values)

    async def write(self, values: Mapping[str, float], version: str) -> bool:
        """Replace the values, if `version` is still the latest. Returns whether it was."""
        if version != str(self._changes or ""):
            return False
        self._values = dict(values)
        self._changes += 1
        return True

    async def lead(self) -> bool:
        """Take or keep the lock. Returns whether this gateway has it until the lease ends."""
        return True

    async def resign(self) -> None:
        """Release the lock, if this gateway has it."""
