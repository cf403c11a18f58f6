"""Stores the changes of the replicas at run time. This one keeps them in this process's memory."""

from __future__ import annotations

from collections.abc import Mapping
from time import time

from weft_gateway.model.member import Member, Members


class MemberStore:
    """The changes of one gateway, whose process table is in memory. They are lost when it stops.

    All methods raise TableUnavailable without a change if the store is away. If the reply of the
    store is lost, a change may be stored; making it again is harmless.
    """

    def __init__(self) -> None:
        self._records: dict[str, Member] = {}
        self._changes = 0

    async def read(self, background: frozenset[str]) -> Members:
        """Return the members. Confirms the version that the previous call returned: its caller has
        applied it. background: replicas at which this gateway knows a response in the background.
        """
        return Members(str(self._changes), dict(self._records), time(), 0, background)

    async def write(self, changes: Mapping[str, Member | None], version: str) -> bool:
        """Replace or delete (None) records, if `version` is still the latest. Returns whether it
        was.
        """
        if version != str(self._changes):
            return False
        for name, record in changes.items():
            if record is None:
                self._records.pop(name, None)
            else:
                self._records[name] = record
        self._changes += 1
        return True

    async def leave(self) -> None:
        """Stop counting as a gateway that must confirm changes."""
