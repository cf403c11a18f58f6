"""The protocol of what remembers fingerprints, shared by all gateways that share a store.

Two implementations, `memory` and `redis`, pass one contract suite. What is remembered is a hint: it
may be forgotten at any time, oldest first, and then a call begins a new program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from weft_gateway.programs.lineage.marks import Entry, Known

# Marks kept at one fingerprint, the newest ones.
MAX_MARKS: Final = 16
# After so long without use, all is forgotten.
KEEP_S: Final = 3600.0


class LineageStore(Protocol):
    """Marks by tenant and fingerprint."""

    async def get_many(self, tenant: str, fingerprints: Sequence[int], now_s: float) -> Known:
        """What is known of these, in one round trip. `marks` leaves out the unknown ones."""
        ...

    async def put(
        self,
        tenant: str,
        entries: Sequence[Entry],
        folds: Sequence[tuple[str, str]],
        now_s: float,
    ) -> None:
        """Put marks and fold programs, in one round trip. A mark merges with one of its thread.
        folds: a program and what it is part of, "" if it is on its own again."""
        ...
